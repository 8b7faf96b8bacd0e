"""The statements on `queue_pauses`. Each node reads its table's pauses once a second."""

from __future__ import annotations

from sql.statements.lane_rows import LaneRows
from sql.tables import queue_pauses


class Pauses(LaneRows):
    """The pauses of main tables, ended ones too."""

    def __init__(self, schema: str | None = None) -> None:
        super().__init__(queue_pauses, schema)
