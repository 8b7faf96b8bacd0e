"""`stickybus status`: how queues and nodes stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from queue_core.model.limit import Limit
from queue_core.model.pause import Pause
from sql.doctor.finding import lasting
from stickybus.cli.circuits import write_circuits
from stickybus.cli.limits import write_limits
from stickybus.cli.nodes import write_nodes
from stickybus.cli.output import console, plural, say, write_json, write_table
from stickybus.cli.pauses import write_pauses
from stickybus.cli.recurring import write_schedules
from stickybus.cli.target import Json, Url, inspected
from stickybus.cli.tasks_told import tasks_told

if TYPE_CHECKING:
    from queue_core.cluster.subscriber_sets import Difference
    from queue_core.inspector import Inspector
    from queue_core.reading.nodes import NodeStatus
    from queue_core.reading.open_circuits import OpenCircuit
    from queue_core.reading.overview import QueueStatus
    from queue_core.reading.schedules import ScheduleStatus

TYPES_SHOWN = 3
"""Event types that a line names."""
QUEUE_COLUMNS = {
    "table": "TABLE",
    "queue_name": "QUEUE",
    "ready": "READY",
    "limited": "LIMITED",
    "scheduled": "SCHEDULED",
    "running": "RUNNING",
    "parked": "PARKED",
    "suspect": "SUSPECT",
    "paused": "PAUSED",
    "waiting": "WAITING",
    "oldest": "OLDEST READY",
    "posted_per_second": "POSTED/S",
    "processed_per_second": "PROCESSED/S",
    "failed_per_second": "FAILED/S",
    "dead_letters": "DEAD LETTERS",
    "newest_dead_letter": "NEWEST (UTC)",
}


@dataclass(frozen=True)
class _Status:
    queues: list[QueueStatus]
    nodes: list[NodeStatus]
    schedules: list[ScheduleStatus]
    limits: list[Limit]
    pauses: list[Pause]
    circuits: list[OpenCircuit]
    differences: list[Difference]


def status(
    *,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            help="Only this main table; may be repeated. Default: all.",
            show_default=False,
        ),
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show all queues with their entries, the nodes with their leases, and what holds entries.

    Rates are of the last minute.

    READY entries are due and wait for a node; LIMITED ones are due and wait for a place of a limit;
    SCHEDULED ones have a later date; SUSPECT ones were running when their process died and run
    again one by one; PARKED ones have a type or queue that no node has known so far; PAUSED ones
    wait for the end of a pause, or for a circuit to be closed; WAITING ones wait for other entries.
    DEAD LETTERS ended FAILED, and nobody has tried them again, or discarded them. Limits follow
    with the entries that run, then pauses, open circuits, and recurring schedules with their next
    dates. Last lines count held order keys, and name event types of which the live nodes have
    different subscribers.

    Examples:
      stickybus status

      stickybus status --table notifications --json
    """
    from queue_core.reading.overview import RATE_SECONDS

    with inspected(url) as inspector:
        found = _read(inspector, table)
    running = {(queue.table, queue.queue_name): queue.running for queue in found.queues}
    if as_json:
        write_json({"rate_seconds": RATE_SECONDS, **_document(found, running)})
        return
    _show(found, running)
    for told in filter(None, () if table else tasks_told(url)):
        say(f"\n{told}")
    _point_out(found)


def _document(found: _Status, running: Mapping[tuple[str, str], int]) -> dict[str, object]:
    """All of it for JSON; `running`: the entries that run, by table and queue."""
    return {
        "queues": msgspec.to_builtins(found.queues),
        "nodes": msgspec.to_builtins(found.nodes),
        "limits": [
            {
                **msgspec.to_builtins(limit),
                "running": running.get((limit.table, limit.queue_name), 0),
            }
            for limit in found.limits
        ],
        "pauses": msgspec.to_builtins(found.pauses),
        "open_circuits": msgspec.to_builtins(found.circuits),
        "schedules": msgspec.to_builtins(found.schedules),
        "differing_subscribers": [_builtins(difference) for difference in found.differences],
    }


def _show(found: _Status, running: Mapping[tuple[str, str], int]) -> None:
    """The tables; `running` as in `_document`."""
    write_table(
        "Queues",
        QUEUE_COLUMNS,
        [{**msgspec.structs.asdict(queue), "oldest": _age(queue)} for queue in found.queues],
        empty="All queues of entries are empty, and none ended one in the last minute.",
    )
    console().print()
    write_nodes(found.nodes)
    if found.limits:
        console().print()
        write_limits(found.limits, running)
    if found.pauses:
        console().print()
        write_pauses(found.pauses)
    if found.circuits:
        console().print()
        write_circuits(found.circuits)
    if found.schedules:
        console().print()
        write_schedules(found.schedules)


def _age(queue: QueueStatus) -> str | None:
    seconds = queue.oldest_ready_seconds
    return None if seconds is None else lasting(max(0.0, seconds))


def _point_out(found: _Status) -> None:
    """The last lines: what somebody has to look after."""
    dead = sum(queue.dead_letters for queue in found.queues)
    if dead:
        say(f"\n{plural(dead, 'dead letter')}. See: stickybus failed list")
    held = sum(queue.held_keys for queue in found.queues)
    if held:
        say(f"\n{plural(held, 'held order key')}. See: stickybus order held")
    if found.differences:
        names = ", ".join(difference.class_name for difference in found.differences[:TYPES_SHOWN])
        more = len(found.differences) - TYPES_SHOWN
        line = (
            "Subscribers differ between nodes, of "
            f"{names}{f' and {more} more' if more > 0 else ''}: each node runs its share of these "
            "events with its own. See: stickybus doctor"
        )
        say(f"\n{line}")


def _builtins(difference: Difference) -> dict[str, object]:
    return {
        "table": difference.table,
        "queue_name": difference.queue_name,
        "class_name": difference.class_name,
        "nodes_by_subscribers": difference.nodes_of,
    }


def _read(inspector: Inspector, tables: list[str] | None) -> _Status:
    wanted: list[str | None] = [*tables] if tables else [None]
    return _Status(
        [queue for table in wanted for queue in inspector.queues(table=table)],
        inspector.nodes(),
        [schedule for table in wanted for schedule in inspector.schedules(table=table)],
        [limit for table in wanted for limit in inspector.limits(table=table)],
        [pause for table in wanted for pause in inspector.pauses(table=table)],
        [circuit for table in wanted for circuit in inspector.open_circuits(table=table)],
        [
            difference
            for table in wanted
            for difference in inspector.differing_subscribers(table=table)
        ],
    )
