"""Nodes that are silent or differ, their waiting entries, and the needs of all nodes together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Row, select

from queue_core.cluster.subscriber_sets import differences
from queue_core.links.served_tables import members, served
from queue_core.model.lanes import AFTER_KEYED, KEYED, is_node_lane
from sql.doctor.base import Check, Doctor, Scope
from sql.doctor.finding import Finding, Severity, lasting
from sql.statements import nodes
from sql.tables import queue_schedules

SILENT_LEASES = 3
"""After one lease any live node declares a silent one dead."""
OVERDUE_SECONDS = 600.0
"""The time after its due date from which a recurring schedule is late."""
DEPLOY_SECONDS = 600.0
"""Time after a node's start in which a deploy may go on: old and new nodes differ then."""
FULL = 0.9
"""Share of a limit of connections from which the rest may be gone at any moment."""
AT_REST = 10
"""Connections that a bus or service keeps open, as counted on PostgreSQL; elsewhere fewer.

One thread posted then.
"""


def silent_node(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Nodes that are LIVE by their rows, and no longer beat."""
    rows = scope.nodes.all_nodes(connection)
    others = any(_beats(row, scope) for row in rows)
    for row in rows:
        if row.state == nodes.LIVE and not _beats(row, scope):
            why = (
                "The nodes that beat have not declared it dead: look at their logs"
                if others
                else "No node is alive that could declare it dead"
            )
            yield Finding(
                "silent-node",
                Severity.DANGER,
                row.name,
                f"the node {row.name!r} (process {row.pid} on {row.hostname}) last beat "
                f"{lasting(_silence(row, scope))} ago, with a lease of {row.lease_seconds:g} s. "
                f"{why}. Its entries wait.",
                "stickybus worker MODULE:OBJECT # any live node takes over a dead node's entries",
            )


def stranded_lane(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Entries in the lane of a node that does not live, while no live node reaps their table."""
    rows = scope.nodes.all_nodes(connection)
    served_tables = set().union(*(served(row) for row in rows if _beats(row, scope)))
    states = {row.name: row.state for row in rows}
    for statements in scope.statements():
        table = statements.main.name
        if table in served_tables:
            continue
        lanes = statements.lanes(connection, besides=(KEYED, AFTER_KEYED))
        for lane in filter(is_node_lane, lanes):
            yield Finding(
                "stranded-lane",
                Severity.DANGER,
                lane,
                f"entries of {table} wait for the node {lane!r} "
                f"({states.get(lane, 'no such node')}). No live node serves that table, so none "
                "takes them over.",
                "stickybus worker MODULE:OBJECT # with a bus or service on that table",
            )


def overdue_schedule(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Recurring schedules whose date has passed, and nobody fired them."""
    due = queue_schedules.c.next_due
    for row in connection.execute(select(queue_schedules).where(due.is_not(None)).order_by(due)):
        late = (scope.now - row.next_due).total_seconds()
        if late > OVERDUE_SECONDS:
            yield Finding(
                "overdue-schedule",
                Severity.DANGER,
                row.name,
                f"the schedule {row.name!r} of {row.queue_name} was due {lasting(late)} ago: no "
                "live node serves its queue.",
                f"stickybus worker MODULE:OBJECT # with the service of {row.queue_name} and its "
                "queue",
            )


def differing_subscribers(connection: Connection, scope: Scope) -> Iterator[Finding]:
    """Event types of which the live nodes of a bus have different subscribers."""
    for difference in differences(scope.nodes.all_nodes(connection), scope.now):
        done = (scope.now - difference.newest_start).total_seconds() > DEPLOY_SECONDS
        yield Finding(
            "differing-subscribers",
            Severity.DANGER if done else Severity.NOTE,
            difference.class_name,
            f"events {difference.class_name!r} of {difference.queue_name!r} in {difference.table} "
            f"have other subscribers on other nodes: {difference.described()}. Each node runs its "
            "share with its own, and the others never see it.",
            "Give all nodes of a bus the same subscribers, or each service a bus with a table of "
            "its own" + ("" if done else "; during a deploy, wait for its end"),
        )


def connections(connection: Connection, scope: Scope, *, doctor: Doctor) -> Iterator[Finding]:
    """Limits of connections that are nearly used up, or less than the live nodes keep open."""
    serving = sum(
        len(members(row) or ()) for row in scope.nodes.all_nodes(connection) if _beats(row, scope)
    )
    needed = AT_REST * serving
    for limit in doctor.connection_limits(connection):
        if limit.used >= FULL * limit.most:
            yield Finding(
                "connections",
                Severity.DANGER,
                limit.whose,
                f"{limit.used} of the {limit.most} connections of {limit.whose} are taken: nodes "
                "that get none can't beat, and posts fail.",
                limit.cure,
            )
        elif needed > FULL * limit.most:
            yield Finding(
                "connections",
                Severity.SLOW,
                limit.whose,
                f"{serving} buses and services of live nodes keep {AT_REST} connections each; "
                f"{limit.whose} allows {limit.most}.",
                limit.cure,
            )


def _beats(row: Row[Any], scope: Scope) -> bool:
    return row.state == nodes.LIVE and _silence(row, scope) <= SILENT_LEASES * float(
        row.lease_seconds
    )


def _silence(row: Row[Any], scope: Scope) -> float:
    """Seconds since its last beat, by the dates that it wrote."""
    silence: float = (scope.now - row.beat_date).total_seconds()
    return silence


NODE_CHECKS: tuple[Check, ...] = (
    silent_node,
    stranded_lane,
    overdue_schedule,
    differing_subscribers,
)
