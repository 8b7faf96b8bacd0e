"""The phrases of reasons."""

from __future__ import annotations

from datetime import datetime

from queue_core.reading.nodes import NodeStatus
from sql.statements import nodes


def whereabouts(node: NodeStatus | None) -> str:
    """The state of a node, by its row."""
    if node is None:
        return "has no row"
    if node.state == nodes.LIVE:
        return f"has been silent since {moment(node.beat_date)}"
    return f"is {node.state} since {moment(node.beat_date)}"


def moment(date: datetime | None) -> str:
    """A date, to the second."""
    return "an unknown date" if date is None else f"{date:%Y-%m-%d %H:%M:%S} UTC"


def times(count: int) -> str:
    """A number of times, in words."""
    return "once" if count == 1 else f"{count:,} times"
