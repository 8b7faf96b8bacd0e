"""Groups of entries, and where they stand."""

from __future__ import annotations

from datetime import datetime

import msgspec


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a group. Dates are aware, in UTC.

    Attributes:
        table: The main table.
        queue_name: The queue on which it was opened, to which its callbacks are posted.
        group_id: Its id.
        name: Its name, if it has one.
        created_by: The node or process that opened it.
        created_date: The date of its opening.
        sealed_date: The date of its seal; None if it takes members.
        completed_date: The date by which it was sealed and all members had ended; None until then.
        total: Its members.
        succeeded: Members that have ended PROCESSED.
        failed: Members that have ended FAILED.
        cancelled: Members that have ended REMOVED.
    """

    table: str
    queue_name: str
    group_id: int
    name: str | None
    created_by: str
    created_date: datetime
    sealed_date: datetime | None
    completed_date: datetime | None
    total: int
    succeeded: int
    failed: int
    cancelled: int

    @property
    def live(self) -> int:
        """Members that have not ended."""
        return self.total - self.succeeded - self.failed - self.cancelled
