"""Options that say which entries a command is about."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from stickybus.cli.usage import UsageError

if TYPE_CHECKING:
    from queue_core.storage.search_keys import Unset

DEFAULT_TABLE = "bus_events"

Queue = Annotated[
    str | None, typer.Option("--queue", help="Only this bus or service:queue.", show_default=False)
]
WholeQueue = Annotated[
    str,
    typer.Argument(metavar="QUEUE", help="The bus, or service:queue.", show_default=False),
]
EventName = Annotated[
    str | None, typer.Option("--event", help="Only this event name.", show_default=False)
]
_KEY_HELP = "Only this search key {}: an integer, or a text."
Key1 = Annotated[str | None, typer.Option("--key1", help=_KEY_HELP.format(1), show_default=False)]
Key2 = Annotated[str | None, typer.Option("--key2", help=_KEY_HELP.format(2), show_default=False)]
AnyTable = Annotated[
    str | None,
    typer.Option("--table", help="Only of this main table. Default: all.", show_default=False),
]
AnyQueue = Annotated[
    str | None,
    typer.Option("--queue", help="Only of this queue. Default: all.", show_default=False),
]
RecordId = Annotated[int, typer.Argument(metavar="ID", help="Record id.", show_default=False)]
SomeIds = Annotated[
    list[int] | None, typer.Argument(metavar="[ID...]", help="Record ids.", show_default=False)
]
AllSubscribers = Annotated[
    bool, typer.Option("--all-subscribers", help="Run those that had succeeded, too.")
]
LimitedBy = Annotated[
    str | None,
    typer.Option(
        help="Author of the limit. Default: your user name and machine.", show_default=False
    ),
]
Limit = Annotated[int, typer.Option(min=1, help="At most this number.")]
Payload = Annotated[bool, typer.Option("--payload", help="Show payloads too.")]


class Keys(TypedDict):
    """Search keys as the library takes them."""

    search_key1: int | str | Unset
    search_key2: int | str | Unset


def key_of(given: str) -> int | str:
    """A search key of the command line: an integer where it reads as one, else a text.

    In JSON's quotes it is a text in any case: `'"4711"'`.
    """
    try:
        return int(given)
    except ValueError:
        quoted = len(given) > 1 and given[0] == given[-1] == '"'
    if not quoted:
        return given
    try:
        return str(json.loads(given))
    except ValueError as error:
        raise UsageError(f"the key {given} is no text in JSON's quotes: {error}") from error


def keys_of(key1: str | None, key2: str | None) -> Keys:
    """Search keys as the library takes them: a key that is not given matches all."""
    from queue_core.storage.search_keys import UNSET

    return {
        "search_key1": UNSET if key1 is None else key_of(key1),
        "search_key2": UNSET if key2 is None else key_of(key2),
    }
