"""Options that say which entries a command is about."""

from __future__ import annotations

from typing import Annotated, TypedDict

import typer

from queue_core.storage.rows import UNSET, Unset

DEFAULT_TABLE = "bus_events"

Queue = Annotated[
    str | None, typer.Option("--queue", help="Only this bus or service:queue.", show_default=False)
]
EventName = Annotated[
    str | None, typer.Option("--event", help="Only this event name.", show_default=False)
]
Key1 = Annotated[
    int | None, typer.Option("--key1", help="Only this search key 1.", show_default=False)
]
Key2 = Annotated[
    int | None, typer.Option("--key2", help="Only this search key 2.", show_default=False)
]
AnyTable = Annotated[
    str | None,
    typer.Option("--table", help="Only of this main table. Default: all.", show_default=False),
]
Limit = Annotated[int, typer.Option(min=1, help="At most this number.")]
Payload = Annotated[bool, typer.Option("--payload", help="Show payloads too.")]


class Keys(TypedDict):
    """Search keys as the library takes them."""

    search_key1: int | Unset
    search_key2: int | Unset


def keys_of(key1: int | None, key2: int | None) -> Keys:
    """Search keys as the library takes them: what is not given matches all."""
    return {
        "search_key1": UNSET if key1 is None else key1,
        "search_key2": UNSET if key2 is None else key2,
    }
