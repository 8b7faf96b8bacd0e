"""The nodes of a database as their rows tell of them, for people who look."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Row

from sql.statements import nodes


class NodeStatus(msgspec.Struct, kw_only=True):
    """One node, dead and stopped ones too. Dates in UTC.

    `state` is LIVE, STOPPED (in order, its lease not over yet), GONE (likewise, and over) or DEAD. `lease_left_seconds`
    goes by the dates that the node wrote; negative: it is overdue; None: it is not LIVE. Other nodes judge it by their
    own clocks. `serves` has an object for each bus and service: its `table`, `queues` and `types`.
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


def status(row: Row[Any], now: datetime) -> NodeStatus:
    """How the node of a row stands at `now`, by the database's clock."""
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


def _served(text: str) -> list[dict[str, Any]]:
    """What a node tells of itself; nothing if another version, or somebody's hand, wrote it otherwise."""
    try:
        return [
            served
            for served in msgspec.json.decode(text, type=list[dict[str, Any]])
            if _named(served)
        ]
    except (msgspec.MsgspecError, RecursionError):
        return []


def _named(served: dict[str, Any]) -> bool:
    queues = served.get("queues")
    return isinstance(queues, list) and all(isinstance(name, str) for name in queues)
