"""The options that `stickybus post` and `stickybus schedule` share."""

from __future__ import annotations

from typing import Annotated

import typer

File = Annotated[
    str,
    typer.Argument(
        help="File of JSON objects, one a line; - for standard input.", show_default=False
    ),
]
EventField = Annotated[
    str | None, typer.Option(help="Field that holds the event's name.", show_default=False)
]
Event = Annotated[
    str | None,
    typer.Option(help="Name of all events, instead of --event-field.", show_default=False),
]
Key1 = Annotated[
    str | None,
    typer.Option(
        help="Field that holds search key 1: an integer, a text or null.", show_default=False
    ),
]
Key2 = Annotated[
    str | None,
    typer.Option(
        help="Field that holds search key 2: an integer, a text or null.", show_default=False
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        help="Field that holds the idempotency key, a string. See docs/how-to/keys.md.",
        show_default=False,
    ),
]
Kept = Annotated[
    str,
    typer.Option("--keep", help="How long keys are kept: waiting, living, forever, or such as 7d."),
]
Conflict = Annotated[
    str,
    typer.Option(
        "--on-conflict",
        help="What to do if a key is taken: return, raise, replace, requeue or debounce.",
    ),
]
Urgency = Annotated[
    str, typer.Option("--priority", help="normal, high or urgent: see docs/how-to/priority.md.")
]
PayloadField = Annotated[
    str,
    typer.Option(
        help="Field that holds the payload, an object; a line without it is the payload itself."
    ),
]
FromLine = Annotated[int, typer.Option(min=1, help="Number of the first line to post.")]
