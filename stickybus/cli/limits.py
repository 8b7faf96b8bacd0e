"""`stickybus limit`, `unlimit` and `limits`: the most that all nodes together do of a queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import typer

from queue_core.model.limit import Limit
from stickybus.cli.doubts import doubt, refuse_other_table
from stickybus.cli.entry_options import DEFAULT_TABLE, AnyTable, LimitedBy, WholeQueue
from stickybus.cli.moments import parsed_duration
from stickybus.cli.output import say, write_json, write_table
from stickybus.cli.target import Json, TableName, Url, inspected, opened
from stickybus.cli.usage import UsageError

COLUMNS = {
    "table": "TABLE",
    "queue_name": "QUEUE",
    "concurrency": "CONCURRENCY",
    "per_node": "PER NODE",
    "rate": "RATE",
    "burst": "BURST",
    "per_key": "PER KEY",
    "rate_per_key": "RATE PER KEY",
    "burst_per_key": "BURST PER KEY",
    "limited_by": "LIMITED BY",
    "since": "SINCE (UTC)",
}


def limit(
    queue: WholeQueue,
    *,
    concurrency: Annotated[
        int | None,
        typer.Option(
            help="At most this number of entries run at once, on all nodes.", show_default=False
        ),
    ] = None,
    per_node: Annotated[
        int | None,
        typer.Option(help="At most this number run at once on each node.", show_default=False),
    ] = None,
    rate: Annotated[
        int | None,
        typer.Option(help="At most this number start in each time --per.", show_default=False),
    ] = None,
    per: Annotated[str, typer.Option(help="The time of the rates, such as 1s, 1m or 1h.")] = "1s",
    burst: Annotated[int, typer.Option(help="At most this number of --rate start at once.")] = 1,
    per_key: Annotated[
        int | None,
        typer.Option(
            help="At most this number of entries of each limit key run at once, on all nodes.",
            show_default=False,
        ),
    ] = None,
    rate_per_key: Annotated[
        int | None,
        typer.Option(
            help="At most this number of entries of each limit key start in each time --per.",
            show_default=False,
        ),
    ] = None,
    burst_per_key: Annotated[
        int, typer.Option(help="At most this number of --rate-per-key start at once.")
    ] = 1,
    by: LimitedBy = None,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Let all nodes together run no more of a queue than this.

    It replaces the queue's limit, and holds over restarts. Posting goes on; entries that find no
    place wait; other queues run.

    Examples:
      stickybus limit bus --concurrency 10

      stickybus limit shop:mails --table notifications --rate 100 --per 1m --burst 10

      stickybus limit bus --per-key 3
    """
    if (concurrency, per_node, rate, per_key, rate_per_key) == (None,) * 5:
        raise UsageError(
            "give --concurrency, --per-node, --rate, --per-key or --rate-per-key. To end a limit: "
            f"stickybus unlimit {queue}"
        )
    from queue_core.limiting import Limiting

    refuse_other_table(url, table, queue)
    with opened(url, table) as engine:
        made = Limiting(engine, queue).limit(
            concurrency=concurrency,
            per_node=per_node,
            rate=rate,
            per=parsed_duration(per),
            burst=burst,
            per_key=per_key,
            rate_per_key=rate_per_key,
            burst_per_key=burst_per_key,
            by=by,
        )
    back = f"To take the limit back: stickybus unlimit {queue} --table {table}"
    doubt(url, table, queue, to_undo=back)
    if as_json:
        write_json(msgspec.to_builtins(made))
    else:
        say(f"{queue} is limited to {made.told}")


def unlimit(
    queue: WholeQueue, *, table: TableName = DEFAULT_TABLE, url: Url = None, as_json: Json = False
) -> None:
    """End the limit of a queue: its entries run.

    Examples:
      stickybus unlimit bus
    """
    from queue_core.limiting import Limiting

    with opened(url, table) as engine:
        removed = Limiting(engine, queue).unlimit()
    if not removed:
        refuse_other_table(url, table, queue)
    if as_json:
        write_json({"unlimited": removed})
    else:
        end = "is limited no more" if removed else "was not limited"
        say(f"{queue} {end}")


def limits(*, table: AnyTable = None, url: Url = None, as_json: Json = False) -> None:
    """Show the limits of queues: their values, authors and dates.

    Examples:
      stickybus limits

      stickybus limits --table notifications --json
    """
    with inspected(url) as inspector:
        found = inspector.limits(table=table)
    if as_json:
        write_json(msgspec.to_builtins(found))
    else:
        write_limits(found)


def write_limits(found: list[Limit], running: Mapping[tuple[str, str], int] | None = None) -> None:
    """The limits as a table, and how many entries run of each (table, queue) if that is known."""
    columns, rows = COLUMNS, [_row(one) for one in found]
    if running is not None:
        columns = {**COLUMNS, "running": "RUNNING"}
        for row in rows:
            row["running"] = running.get((row["table"], row["queue_name"]), 0)
    write_table("Limits", columns, rows, empty="Nothing is limited.")


def _row(limit: Limit) -> dict[str, Any]:
    row = msgspec.structs.asdict(limit)
    for rate, burst in (("rate", "burst"), ("rate_per_key", "burst_per_key")):
        if row[rate] is None:
            row[burst] = None
        else:
            row[rate] = f"{row[rate]} in {limit.per}"
    return row
