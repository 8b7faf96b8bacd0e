"""`stickybus nodes`: the processes of the cluster and their leases."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Row
from sqlalchemy.exc import DBAPIError

from queue_core.cluster.subscriber_sets import Difference, differences
from queue_core.errors import SchemaMissingError
from sql.database import Database
from sql.statements import nodes as sql_nodes
from stickybus.cli.output import write_json, write_table
from stickybus.cli.target import Json, Url, connected

COLUMNS = {
    "name": "NODE",
    "state": "STATE",
    "lease": "LEASE",
    "hostname": "HOST",
    "pid": "PID",
    "epoch": "EPOCH",
    "started_date": "SINCE (UTC)",
    "queues": "SERVES",
}


class NodeStanding(msgspec.Struct, kw_only=True):
    """One row of the nodes' table. Dates in UTC.

    `lease_left_seconds` goes by the dates that the node wrote, for people to look at; negative: it is overdue. Other
    nodes judge it by their own clocks.
    """

    name: str
    state: str
    epoch: int
    hostname: str
    pid: int
    lease_seconds: float
    lease_left_seconds: float | None
    started_date: datetime
    beat_date: datetime
    serves: list[dict[str, Any]]


def nodes(*, url: Url = None, as_json: Json = False) -> None:
    """Show the nodes: state, lease, and which queues each serves.

    A LIVE node that does not renew its lease in time is declared DEAD by another, which takes over its entries.

    Examples:
      stickybus nodes

      stickybus nodes --json
    """
    with connected(url) as database:
        found = node_standings(database)
    if as_json:
        write_json(msgspec.to_builtins(found))
    else:
        write_nodes(found)


def node_standings(database: Database) -> list[NodeStanding]:
    """All nodes, by name. Raises SchemaMissingError."""
    rows, now = _rows(database)
    return [_standing(row, now) for row in rows]


def subscriber_differences(database: Database) -> list[Difference]:
    """Where live nodes have different subscribers of an event type. Raises SchemaMissingError."""
    return differences(*_rows(database))


def _rows(database: Database) -> tuple[list[Row[Any]], datetime]:
    """The rows of all nodes, and the time by the database's clock."""

    def read(connection: Connection) -> tuple[list[Row[Any]], datetime]:
        now = database.dialect.database_now(connection)
        return sql_nodes.all_nodes(connection), now

    try:
        return database.fetch(read)
    except DBAPIError as error:
        raise SchemaMissingError(
            f"{database.url.render_as_string()} has no table of nodes. Run: stickybus schema create"
        ) from error


def _standing(row: Any, now: datetime) -> NodeStanding:
    live = row.state == sql_nodes.LIVE
    left = row.lease_seconds - (now - row.beat_date).total_seconds()
    return NodeStanding(
        name=row.name,
        state=row.state,
        epoch=row.epoch,
        hostname=row.hostname,
        pid=row.pid,
        lease_seconds=row.lease_seconds,
        lease_left_seconds=round(left, 3) if live else None,
        started_date=row.started_date,
        beat_date=row.beat_date,
        serves=_served(row.serves),
    )


def _served(text: str) -> list[dict[str, Any]]:
    """What a node tells of itself; nothing if another version, or somebody's hand, wrote it otherwise."""
    try:
        return [served for served in msgspec.json.decode(text, type=list[dict[str, Any]]) if _named(served)]
    except (msgspec.MsgspecError, RecursionError):
        return []


def _named(served: dict[str, Any]) -> bool:
    queues = served.get("queues")
    return isinstance(queues, list) and all(isinstance(name, str) for name in queues)


def write_nodes(found: list[NodeStanding]) -> None:
    """The nodes as a table."""
    rows = [
        {
            **msgspec.structs.asdict(node),
            "lease": _lease(node),
            "queues": ", ".join(sorted({name for served in node.serves for name in served["queues"]}))
            or None,
            # Not a quantity: without separators.
            "pid": str(node.pid),
            "epoch": str(node.epoch),
        }
        for node in found
    ]
    write_table("Nodes", COLUMNS, rows, empty="No node has ever run here.")


def _lease(node: NodeStanding) -> str | None:
    left = node.lease_left_seconds
    if left is None:
        return None
    return f"{left:.1f} s of {node.lease_seconds:g} s" if left >= 0 else f"overdue by {-left:.1f} s"
