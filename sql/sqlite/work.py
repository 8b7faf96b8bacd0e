"""SQLite's statements of the work queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select
from sqlalchemy.util import memoized_property

from sql.statements.work.tasks import WorkTasks


class SQLiteWorkTasks(WorkTasks):
    """See `WorkTasks`."""

    def takes_at_once(self, limit: int) -> bool:
        """See `WorkTasks.takes_at_once`: an UPDATE answers in the order of rows, not of arrival."""
        return limit == 1

    @memoized_property
    def _first(self) -> Select[Any]:
        return self._available(self.table.c.task_id)

    def claim(self, connection: Connection, claim: Mapping[str, Any]) -> list[Sequence[Any]]:
        """See `WorkTasks.claim`."""
        if self.takes_at_once(claim["limit"]):
            return super().claim(connection, claim)
        first = self._rows(connection, self._first, claim)
        places = {row[0]: place for place, row in enumerate(first)}
        taken = super().claim(connection, claim) if places else []
        return sorted(taken, key=lambda row: places[row[0]])
