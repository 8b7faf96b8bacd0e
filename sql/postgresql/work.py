"""PostgreSQL's statements of the work queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    String,
    any_,
    bindparam,
    delete,
    insert,
    literal_column,
    or_,
    select,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.util import memoized_property

from sql.postgresql.capabilities import POSTGRESQL
from sql.statements.work.history import ENDED
from sql.statements.work.tasks import WorkTasks
from sql.tables import in_schema, work_queue_counts, work_task_history
from sql.types import UtcDateTime


class PostgreSQLWorkTasks(WorkTasks):
    """See `WorkTasks`."""

    capabilities = POSTGRESQL

    def __init__(self, schema: str | None = None) -> None:
        super().__init__(schema)
        self.past = in_schema(work_task_history, schema)
        self.counts = in_schema(work_queue_counts, schema)

    def _has_id(self, task_id: ColumnElement[str]) -> ColumnElement[bool]:
        # As with entries: not as an equality, by which both sides could be merged.
        return self.table.c.task_id == any_(postgresql.array([task_id]))

    def ends_at_once(self) -> bool:
        """See `WorkTasks.ends_at_once`."""
        return True

    def end(self, connection: Connection, end: Mapping[str, Any]) -> list[Row[Any]]:
        """See `WorkTasks.end`. A DELETE that has waited for a lock looks at the task anew."""
        return [self._fact_row(*row) for row in self._rows(connection, self._end, end)]

    @memoized_property
    def _end(self) -> Select[Any]:
        tasks, past, counts = self.table, self.past, self.counts
        now, by = bindparam("now", type_=UtcDateTime()), bindparam("by", type_=String())
        finisher = bindparam("finisher", type_=String())
        queue, empty = bindparam("of_queue", type_=String()), literal_column("''", String())
        named = delete(tasks).where(
            tasks.c.task_id == bindparam("of_task", type_=String()),
            tasks.c.version == bindparam("of_version", type_=Integer()),
            or_(queue == empty, tasks.c.queue == queue),
            or_(tasks.c.arrival_date <= now, tasks.c.claimant == empty, tasks.c.claimant == by),
            or_(tasks.c.arrival_date <= now, tasks.c.claims > literal_column("0")),
        )
        gone = named.returning(*self.columns, *self._settings).cte("gone")
        copied = [column.name for column in past.c if column.name not in ENDED]
        ended = select(*(gone.c[name] for name in copied), now, finisher).where(
            gone.c.keeps_history
        )
        kept = insert(past).from_select([*copied, "finished_date", "finished_by"], ended)
        counted = insert(counts).from_select(
            ["name", "amount"], select(gone.c.queue, literal_column("-1"))
        )
        facts = [gone.c[column.name] for column in self.facts]
        return select(*facts, gone.c.keeps_history, gone.c.is_limited).add_cte(
            kept.cte("kept"), counted.cte("counted")
        )
