"""The statements on `queue_limits`. Each node reads its table's limits once a second."""

from __future__ import annotations

from sql.statements.lane_rows import LaneRows
from sql.tables import queue_limits


class Limits(LaneRows):
    """A limit that is replaced keeps its arrival date: earlier starts at its rate still count."""

    def __init__(self, schema: str | None = None) -> None:
        super().__init__(queue_limits, schema)
