"""The nodes of a database, as their rows show them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Required, TypedDict, TypeGuard

import msgspec
from sqlalchemy import Row

from queue_core.storage.store import Store
from sql.families import NODES
from sql.statements import nodes


class Served(TypedDict, total=False):
    """One bus or service of a node, as the node publishes it; another version may leave parts out.

    `subscribers` has the names of each event type's subscribers, or their number and digest if they
    are long. `history` is absent if all entries that end stay there. `outliving` has ids of entries
    that still run after the bus or service has stopped.
    """

    table: str
    mode: str
    history: str
    queues: Required[list[str]]
    types: list[str]
    subscribers: dict[str, list[str] | str]
    outliving: list[int]


class NodeStatus(msgspec.Struct, kw_only=True):
    """One node, dead and stopped ones too. Dates are aware, in UTC.

    Attributes:
        name: Its name.
        state: LIVE, STOPPED (in order, its lease not over yet), GONE (in order, its lease over) or
            DEAD.
        epoch: Counts the processes that held the name.
        hostname: Its machine.
        pid: The id of its process.
        lease_seconds: The length of its lease.
        lease_left_seconds: Seconds until the lease ends by the dates that the node wrote; negative
            if it is overdue, None if the node is not LIVE. Other nodes judge by their own clocks.
        started_date: The date of its registration.
        beat_date: The date of its last beat.
        serves: Its buses and services.
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
    serves: list[Served]


def status(row: Row[Any], now: datetime) -> NodeStatus:
    """The status of a row's node at `now`, by the database's clock."""
    live = row.state == nodes.LIVE
    left = row.lease_seconds - (now - row.beat_date).total_seconds()
    return NodeStatus(
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


def live_nodes(store: Store) -> list[NodeStatus]:
    """The nodes that nobody has declared dead, and that have not stopped."""
    all_nodes = store.database.dialect.statements_for(NODES)().all_nodes
    now = store.clock.now()
    found = [status(row, now) for row in store.database.fetch(all_nodes)]
    return [node for node in found if node.state == nodes.LIVE]


def served_by(node: NodeStatus, table: str) -> list[Served]:
    """Its buses and services on this main table."""
    return [served for served in node.serves if served.get("table") == table]


def _served(text: str) -> list[Served]:
    """The buses and services of a row; none if another version, or a person, wrote it otherwise."""
    try:
        found = msgspec.json.decode(text, type=list[dict[str, object]])
    except (msgspec.MsgspecError, RecursionError):
        return []
    return [served for served in found if _is_served(served)]


def _is_served(served: Mapping[str, object]) -> TypeGuard[Served]:
    queues = served.get("queues")
    return isinstance(queues, list) and all(isinstance(name, str) for name in queues)
