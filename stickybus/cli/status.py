"""`stickybus status`: how queues and nodes stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec
import typer

from queue_core.cluster.subscriber_sets import Difference
from queue_core.errors import SchemaMissingError
from queue_core.model.codec import Codecs
from queue_core.model.config import BusConfig
from queue_core.model.event_types import EventTypes
from queue_core.reading.overview import RATE_SECONDS, QueueStanding, standings
from queue_core.runtime.clock import SystemClock
from queue_core.storage.store import Store
from sql import schema
from stickybus.cli.nodes import NodeStanding, node_standings, subscriber_differences, write_nodes
from stickybus.cli.output import console, write_json, write_table
from stickybus.cli.target import Json, Url, connected

TYPES_SHOWN = 3
QUEUE_COLUMNS = {
    "table": "TABLE",
    "queue_name": "QUEUE",
    "ready": "READY",
    "scheduled": "SCHEDULED",
    "running": "RUNNING",
    "parked": "PARKED",
    "suspect": "SUSPECT",
    "oldest": "OLDEST READY",
    "posted_per_second": "POSTED/S",
    "processed_per_second": "PROCESSED/S",
    "failed_per_second": "FAILED/S",
}


@dataclass(frozen=True)
class _Status:
    queues: list[QueueStanding]
    nodes: list[NodeStanding]
    differences: list[Difference]


def status(
    *,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table", help="Only this main table; may be repeated. Default: all.", show_default=False
        ),
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show all queues with what they hold, and the nodes with their leases. Rates are of the last minute.

    READY entries are due and wait for a node; SCHEDULED ones have a later date; SUSPECT ones were running when their
    process died and run again one by one; PARKED ones have a type or queue that no node has known so far. A last line
    tells of event types of which the live nodes have different subscribers.

    Examples:
      stickybus status

      stickybus status --table notifications --json
    """
    found = _read(url, table)
    if as_json:
        write_json(
            {
                "rate_seconds": RATE_SECONDS,
                "queues": msgspec.to_builtins(found.queues),
                "nodes": msgspec.to_builtins(found.nodes),
                "differing_subscribers": [_builtins(difference) for difference in found.differences],
            }
        )
        return
    rows = [
        {**msgspec.to_builtins(queue), "oldest": age(queue.oldest_ready_seconds)} for queue in found.queues
    ]
    write_table(
        "Queues",
        QUEUE_COLUMNS,
        rows,
        empty="All queues are empty, and none ended an entry in the last minute.",
    )
    console().print()
    write_nodes(found.nodes)
    if found.differences:
        names = ", ".join(difference.class_name for difference in found.differences[:TYPES_SHOWN])
        more = len(found.differences) - TYPES_SHOWN
        line = (
            f"Subscribers differ between nodes, of {names}{f' and {more} more' if more > 0 else ''}: each node runs its share of "
            "these events with its own. See: stickybus doctor"
        )
        console().print(f"\n{line}", markup=False, soft_wrap=True)


def _builtins(difference: Difference) -> dict[str, object]:
    return {
        "table": difference.table,
        "queue_name": difference.queue_name,
        "class_name": difference.class_name,
        "nodes_by_subscribers": {
            shown: [row.name for row in rows] for shown, rows in difference.nodes_of.items()
        },
    }


def _read(url: str | None, tables: list[str] | None) -> _Status:
    with connected(url) as database:
        known = database.fetch(schema.main_tables)
        unknown = [table for table in tables or () if table not in known]
        if unknown or not known:
            missing = f"the table {unknown[0]!r}" if unknown else "queue tables"
            raise SchemaMissingError(
                f"{database.url.render_as_string()} lacks {missing}. Run: stickybus schema create"
            )
        queues = []
        for table in tables or known:
            types = EventTypes()
            store = Store(database, BusConfig(table=table), SystemClock(), types, Codecs(types))
            queues += standings(store)
        differing = [
            difference
            for difference in subscriber_differences(database)
            if difference.table in (tables or known)
        ]
        return _Status(queues, node_standings(database), differing)


def age(seconds: float | None) -> str | None:
    """A length of time in its two largest units, such as `1h 05m`."""
    if seconds is None:
        return None
    whole = int(max(0.0, seconds))
    minutes, hours, days = whole // 60, whole // 3_600, whole // 86_400
    if not minutes:
        return f"{max(0.0, seconds):.1f}s"
    if not hours:
        return f"{minutes}m {whole % 60:02}s"
    if not days:
        return f"{hours}h {minutes % 60:02}m"
    return f"{days}d {hours % 24:02}h"
