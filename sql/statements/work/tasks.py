"""The statements on `work_tasks`.

Rows are locked in the order of their ids, but by claims, which skip the rows that others have
locked.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    Row,
    Select,
    String,
    bindparam,
    delete,
    insert,
    or_,
    select,
)
from sqlalchemy.util import memoized_property

from sql.drivers.hot_path import use_of
from sql.statements.insert_new import inserted
from sql.statements.work.change import change_by
from sql.statements.work.claims import IDS, WorkClaims
from sql.tables import in_schema, work_queue_settings


def one_or_all(rows: Sequence[Mapping[str, Any]]) -> Any:
    """The parameters of a statement: drivers take longer for a list, also for one of one."""
    return rows[0] if len(rows) == 1 else list(rows)


class FailedTasks(NamedTuple):
    """Tasks that a failure has moved: of all queues, or `failed_in` one, and with a `text`."""

    failed_in: str | None = None
    text: str | None = None


class WorkTasks(WorkClaims):
    """See `WorkClaims`."""

    def __init__(self, schema: str | None = None) -> None:
        super().__init__(schema)
        self.settings = in_schema(work_queue_settings, schema)

    # -- modifications ----------------------------------------------------------------------------

    def present(self, connection: Connection, ids: Sequence[str]) -> list[Row[Any]]:
        """The tasks of these ids, without values, as a snapshot that locks nothing."""
        return self._named(connection, self._facts_of_ids, ids)

    def lock(
        self, connection: Connection, ids: Sequence[str], *, shared: bool = False
    ) -> list[Row[Any]]:
        """The tasks of these ids, without values, as they are now; they stay so.

        Other transactions may lock them as well if it is `shared`. Else each row says, too, whether
        its queue `keeps_history`, and whether it `is_limited`.
        """
        if len(ids) == 1 and not shared and use_of(connection) is not None:
            rows = self._rows(connection, self._locked_one, {"of_task": ids[0]})
            return [self._fact_row(*row) for row in rows]
        return self._named(connection, self._shared if shared else self._locked, sorted(ids))

    def unlocked(self, connection: Connection, ids: Sequence[str]) -> list[Row[Any]]:
        """The tasks of these ids that no transaction has locked, without values."""
        free = self._facts_of_ids.with_for_update(skip_locked=True)
        return self._named(connection, free, ids)

    def _named(
        self, connection: Connection, statement: Select[Any], ids: Sequence[str]
    ) -> list[Row[Any]]:
        found = list[Row[Any]]()
        for start in range(0, len(ids), IDS):
            found += connection.execute(statement, {"ids": ids[start : start + IDS]})
        return found

    # Each is made once: that takes a good part of the time of its answer.

    @memoized_property
    def _facts_of_ids(self) -> Select[Any]:
        return self._of_ids(self.facts)

    @memoized_property
    def _all_of_ids(self) -> Select[Any]:
        return self._of_ids(self.columns)

    @memoized_property
    def _locked(self) -> Select[Any]:
        locked = self._of_ids([*self.facts, *self._settings])
        return locked.order_by(self.table.c.task_id).with_for_update()

    @memoized_property
    def _locked_one(self) -> Select[Any]:
        named = self.table.c.task_id == bindparam("of_task", type_=String())
        one = select(*self.facts, *self._settings).where(named)
        return self._looked_up(one).with_for_update()

    @memoized_property
    def _settings(self) -> tuple[Any, ...]:
        # Read along with the lock: queues without history, or a limit, pay no statement for it.
        queue, settings, limits = self.table.c.queue, self.settings, self.limits
        kept = select(settings.c.queue).where(
            settings.c.queue == queue, settings.c.history_since.is_not(None)
        )
        limited = select(limits.c.queue).where(limits.c.queue == queue)
        return kept.exists().label("keeps_history"), limited.exists().label("is_limited")

    @memoized_property
    def _fact_row(self) -> Any:
        names = [column.name for column in (*self.facts, *self._settings)]
        return namedtuple("TaskFacts", names)  # noqa: PYI024 -- its names are the table's

    @memoized_property
    def _shared(self) -> Select[Any]:
        return self._facts_of_ids.order_by(self.table.c.task_id).with_for_update(read=True)

    def _of_ids(self, columns: Sequence[ColumnElement[Any]]) -> Select[Any]:
        named = bindparam("ids", expanding=True, type_=String())
        return self._looked_up(select(*columns).where(self.table.c.task_id.in_(named)))

    def insert(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert tasks whose ids are new."""
        connection.execute(insert(self.table).inline(), one_or_all(rows))

    def insert_new(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """Insert tasks one by one; returns the ids that are taken."""
        return [row["task_id"] for row in rows if not inserted(connection, self.table, row)]

    def change(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write columns of locked tasks; each row has its `of_task`, and all the same others."""
        columns = [name for name in rows[0] if name != "of_task"]
        changed = change_by(self.table, {"of_task": "task_id"}, columns)
        given = [
            {name if name == "of_task" else f"new_{name}": value for name, value in row.items()}
            for row in rows
        ]
        connection.execute(changed, one_or_all(given))

    def delete(self, connection: Connection, ids: Sequence[str]) -> None:
        """Delete locked tasks."""
        if len(ids) == 1 and use_of(connection) is not None:
            self._change(connection, self._gone, {"of_task": ids[0]})
            return
        connection.execute(self._gone, [{"of_task": one} for one in sorted(ids)])

    def ends_at_once(self) -> bool:
        """Whether one statement deletes a task, keeps it in history, and counts it."""
        return False

    def end(self, connection: Connection, end: Mapping[str, Any]) -> list[Row[Any]]:
        """Delete a task, keep it if its queue has history, and count it; return it as `lock` does.

        `end` has `of_task`, `of_version`, `of_queue` (empty: any), `now`, the claimant `by`, and
        `finisher`, as history names it.
        Nothing is done to a task that is another version, or in another queue, or that another
        claimant holds, nor to one that nobody has claimed yet and that is still to arrive.
        """
        raise NotImplementedError

    @memoized_property
    def _gone(self) -> Delete:
        return delete(self.table).where(
            self.table.c.task_id == bindparam("of_task", type_=String())
        )

    # -- reads ------------------------------------------------------------------------------------

    def by_ids(self, connection: Connection, ids: Sequence[str], *, values: bool) -> list[Row[Any]]:
        """The tasks of these ids, in any order."""
        return self._named(connection, self._all_of_ids if values else self._facts_of_ids, ids)

    def met(self, connection: Connection, ids: Sequence[str]) -> list[Row[Any]]:
        """The tasks of ids that an insert found taken, in any order."""
        found = self.by_ids(connection, ids, values=True)
        seen = {row.task_id for row in found}
        # A snapshot may be older than the task; a lock sees the present row.
        newer = [one for one in ids if one not in seen]
        return [*found, *self._named(connection, self._all_shared, newer)]

    @memoized_property
    def _all_shared(self) -> Select[Any]:
        return self._all_of_ids.order_by(self.table.c.task_id).with_for_update(read=True)

    def of_queue(
        self,
        connection: Connection,
        queue: str,
        *,
        seen_by: str | None,
        now: datetime,
        failed: FailedTasks | None = None,
        after: tuple[datetime, str] | None = None,
        limit: int | None,
        values: bool,
    ) -> list[Row[Any]]:
        """The tasks of a queue by arrival; those that `seen_by` may work on, if given.

        They begin `after` the task of this arrival and id.
        """
        tasks = self.table
        found = select(*(self.columns if values else self.facts)).where(tasks.c.queue == queue)
        if seen_by is not None:
            found = found.where(or_(tasks.c.arrival_date <= now, tasks.c.claimant == seen_by))
        if failed is not None:
            found = found.where(*self._failed(failed))
        if after is not None:
            found = found.where(*self._after(*after))
        ordered = found.order_by(tasks.c.queue, tasks.c.arrival_date, tasks.c.task_id)
        return list(connection.execute(self._by_arrival(ordered.limit(limit))))

    def _after(self, arrival: datetime, task_id: str) -> Iterator[ColumnElement[bool]]:
        tasks = self.table
        # The first condition is the range of the index; MySQL makes none of a pair.
        yield tasks.c.arrival_date >= arrival
        yield or_(tasks.c.arrival_date > arrival, tasks.c.task_id > task_id)

    def _failed(self, failed: FailedTasks) -> Iterator[ColumnElement[bool]]:
        tasks = self.table
        if failed.failed_in is None:
            yield tasks.c.failed_in.is_not(None)
        else:
            yield tasks.c.failed_in == failed.failed_in
        if failed.text is not None:
            yield tasks.c.err.icontains(failed.text, autoescape=True)
