"""The statements on the history of tasks, and on the settings that say which queues keep one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Connection,
    Insert,
    Row,
    Select,
    String,
    bindparam,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.util import memoized_property

from sql.statements.insert_new import InsertNew
from sql.statements.ranges import Ranges
from sql.statements.work.claims import IDS, VALUES
from sql.tables import in_schema, work_queue_settings, work_task_history, work_tasks
from sql.types import UtcDateTime

ENDED = ("record_id", "finished_date", "finished_by")
"""The columns that a task gets when it ends."""


class WorkHistory(Ranges):
    """With a `schema`, they find the tables whatever the session's search path is."""

    def __init__(self, schema: str | None = None) -> None:
        self.tasks = in_schema(work_tasks, schema)
        self.past = in_schema(work_task_history, schema)
        self.settings = in_schema(work_queue_settings, schema)

    # -- parts that databases write differently ---------------------------------------------------

    def _looked_up(self, statement: Select[Any]) -> Select[Any]:
        """The same read of tasks named by ids, made to look them up in the primary key."""
        return statement

    # -- history ----------------------------------------------------------------------------------

    @memoized_property
    def _copied(self) -> Insert:
        tasks, past = self.tasks, self.past
        copied = [column.name for column in past.c if column.name not in ENDED]
        ended = [
            bindparam("finished_date", type_=UtcDateTime()).label("finished_date"),
            bindparam("finished_by", type_=String()).label("finished_by"),
        ]
        named = tasks.c.task_id.in_(bindparam("ids", expanding=True, type_=String()))
        rows = self._looked_up(select(*(tasks.c[name] for name in copied), *ended).where(named))
        return insert(past).from_select([*copied, "finished_date", "finished_by"], rows)

    def add(self, connection: Connection, ids: Sequence[str], *, now: datetime, by: str) -> None:
        """Copy locked tasks, which end now."""
        ordered = sorted(ids)
        for start in range(0, len(ordered), IDS):
            ended = {"finished_date": now, "finished_by": by, "ids": ordered[start : start + IDS]}
            connection.execute(self._copied, ended)

    def finished(
        self,
        connection: Connection,
        *,
        queue: str | None,
        ids: Sequence[str] | None,
        since: datetime | None,
        before: datetime | None,
        limit: int | None,
        values: bool,
    ) -> list[Row[Any]]:
        """Tasks that ended from `since` on and before `before`, the last one first.

        They are those of a queue, or those with one of the first 500 `ids`, or both.
        """
        past = self.past
        columns = [one for one in past.c if values or one.name not in VALUES]
        found = select(*columns)
        if queue is not None:
            found = found.where(past.c.queue == queue)
        if since is not None:
            found = found.where(past.c.finished_date >= since)
        if before is not None:
            found = found.where(past.c.finished_date < before)
        if ids is not None:
            found = found.where(past.c.task_id.in_(ids[:IDS]))
        ordered = found.order_by(past.c.finished_date.desc(), past.c.record_id.desc())
        return list(connection.execute(ordered.limit(limit)))

    def delete_oldest(
        self, connection: Connection, queue: str, *, before: datetime, limit: int
    ) -> int:
        """Delete the first tasks of a queue that ended before a date; returns how many."""
        past = self.past
        oldest = (
            select(past.c.record_id)
            .where(past.c.queue == queue, past.c.finished_date < before)
            .order_by(past.c.queue, past.c.finished_date, past.c.record_id)
            .limit(limit)
        )
        ids = list(connection.scalars(oldest))
        if not ids:
            return 0
        return connection.execute(delete(past).where(past.c.record_id.in_(ids))).rowcount

    # -- settings ---------------------------------------------------------------------------------

    def keep(self, connection: Connection, queue: str, now: datetime) -> None:
        """Let a queue keep its history from now on, unless it does so already."""
        settings = self.settings
        connection.execute(InsertNew(settings).values(queue=queue, history_since=now))
        unset = update(settings).where(
            settings.c.queue == queue, settings.c.history_since.is_(None)
        )
        connection.execute(unset.values(history_since=now))

    def end(self, connection: Connection, queue: str) -> None:
        """Let a queue keep no history any more. Its rows stay."""
        settings = self.settings
        ended = update(settings).where(settings.c.queue == queue)
        connection.execute(ended.values(history_since=None))

    def queues(self, connection: Connection) -> list[tuple[str, datetime | None]]:
        """Queues that keep history, with the date since when, or that kept it once, by name."""
        settings = self.settings
        rows = connection.execute(select(settings).order_by(settings.c.queue))
        return [(row.queue, row.history_since) for row in rows]
