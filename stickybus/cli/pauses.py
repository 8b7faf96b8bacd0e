"""`stickybus pause`, `resume` and `pauses`: the queues and handlers that no node is to run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import msgspec
import typer

from queue_core.model.pause import Pause
from stickybus.cli.doubts import doubt, refuse_other_table
from stickybus.cli.entry_options import DEFAULT_TABLE, AnyTable, WholeQueue
from stickybus.cli.moments import aware, parsed_duration
from stickybus.cli.output import say, write_json, write_table
from stickybus.cli.target import Json, TableName, Url, inspected, opened
from stickybus.cli.usage import UsageError

COLUMNS = {
    "table": "TABLE",
    "queue_name": "QUEUE",
    "handler": "HANDLER",
    "order_key": "ORDER KEY",
    "paused_by": "PAUSED BY",
    "reason": "REASON",
    "since": "SINCE (UTC)",
    "until": "UNTIL (UTC)",
}

Handler = Annotated[
    str | None,
    typer.Option("--handler", help="Only the subscriber of this name.", show_default=False),
]
OrderKey = Annotated[
    str | None,
    typer.Option("--order-key", help="Only the entries of this order key.", show_default=False),
]


def pause(
    queue: WholeQueue,
    *,
    handler: Handler = None,
    order_key: OrderKey = None,
    reason: Annotated[str | None, typer.Option(help="Why.", show_default=False)] = None,
    until: Annotated[
        str | None,
        typer.Option(
            help=(
                "The end of the pause: after 30m, 2h or 1d, or at a date in ISO 8601. Default: "
                "never."
            ),
            show_default=False,
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="Author of the pause. Default: your user name and machine.", show_default=False
        ),
    ] = None,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Let no node start anything of a queue, one handler or one order key, until it is resumed.

    All nodes obey within a second. Running handlers finish; posting goes on; other queues run. The
    pause holds over restarts.

    Examples:
      stickybus pause bus --reason "the mail server is down" --until 2h

      stickybus pause shop:reminders --table notifications

      stickybus pause bus --handler app.mails.confirm
    """
    from queue_core.pausing import Pausing

    refuse_other_table(url, table, queue)
    with opened(url, table) as engine:
        made = Pausing(engine, queue).pause(
            handler=handler, order_key=order_key, reason=reason, until=_until(until), by=by
        )
    back = f"To take the pause back: stickybus resume {queue} --table {table}"
    back += f" --handler {handler}" if handler else ""
    doubt(url, table, queue, handler=handler, to_undo=back)
    if as_json:
        write_json(msgspec.to_builtins(made))
    else:
        end = f"until {made.until:%Y-%m-%d %H:%M:%S} UTC" if made.until else "until it is resumed"
        say(f"{_named(queue, handler or order_key)} is paused {end}")


def resume(
    queue: WholeQueue,
    *,
    handler: Handler = None,
    order_key: OrderKey = None,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """End a pause: its entries run in their order.

    Examples:
      stickybus resume bus

      stickybus resume bus --handler app.mails.confirm
    """
    from queue_core.pausing import Pausing

    with opened(url, table) as engine:
        resumed = Pausing(engine, queue).resume(handler=handler, order_key=order_key)
    if not resumed:
        refuse_other_table(url, table, queue)
    if as_json:
        write_json({"resumed": resumed})
    else:
        end = "is resumed" if resumed else "was not paused"
        say(f"{_named(queue, handler or order_key)} {end}")


def pauses(*, table: AnyTable = None, url: Url = None, as_json: Json = False) -> None:
    """Show the pauses, with author, reason, beginning and end.

    Examples:
      stickybus pauses

      stickybus pauses --table notifications --json
    """
    with inspected(url) as inspector:
        found = inspector.pauses(table=table)
    if as_json:
        write_json(msgspec.to_builtins(found))
    else:
        write_pauses(found)


def write_pauses(found: list[Pause]) -> None:
    """The pauses as a table."""
    rows = [msgspec.structs.asdict(one) for one in found]
    write_table("Pauses", COLUMNS, rows, empty="Nothing is paused.")


def _until(text: str | None) -> datetime | timedelta | None:
    if text is None:
        return None
    try:
        return parsed_duration(text)
    except UsageError:
        try:
            return aware(text)
        except ValueError as error:
            raise UsageError(f"{error}; or write for how long, such as 2h") from error


def _named(queue: str, part: str | None) -> str:
    return queue if part is None else f"{part} of {queue}"
