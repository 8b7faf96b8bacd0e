"""PostgreSQL's statements of the work queue."""

from __future__ import annotations

from sqlalchemy import ColumnElement, any_
from sqlalchemy.dialects import postgresql

from sql.postgresql.capabilities import POSTGRESQL
from sql.statements.work.tasks import WorkTasks


class PostgreSQLWorkTasks(WorkTasks):
    """See `WorkTasks`."""

    capabilities = POSTGRESQL

    def _has_id(self, task_id: ColumnElement[str]) -> ColumnElement[bool]:
        # As with entries: not as an equality, by which both sides could be merged.
        return self.table.c.task_id == any_(postgresql.array([task_id]))
