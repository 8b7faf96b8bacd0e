"""The statements on `work_tasks`.

Rows are locked in the order of their ids, but by claims, which skip what others have locked.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    String,
    bindparam,
    delete,
    insert,
    literal_column,
    null,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.util import memoized_property

from sql.drivers.hot_path import use_of
from sql.statements.base import HotStatements
from sql.statements.insertion import InsertNew
from sql.tables import in_schema, work_tasks
from sql.types import UtcDateTime

IDS = 500
"""The most ids, or queues, that a statement names."""

VALUES = ("value_json", "value_bytes")


def one_or_all(rows: Sequence[Mapping[str, Any]]) -> Any:
    """The parameters of a statement: drivers take longer for a list, also for one of one."""
    return rows[0] if len(rows) == 1 else list(rows)


class WorkTasks(HotStatements):
    """With a `schema`, they find the table whatever the session's search path is."""

    def __init__(self, schema: str | None = None) -> None:
        super().__init__()
        self.table = in_schema(work_tasks, schema)
        self.columns = list(self.table.c)
        self.facts = [column for column in self.columns if column.name not in VALUES]
        self.claim_index = "work_tasks_claim"

    # -- what databases write differently ---------------------------------------------------------

    def _looked_up(self, statement: Select[Any]) -> Select[Any]:
        """The same read of rows named by ids, made to look them up in the primary key."""
        return statement

    def _by_arrival(self, statement: Select[Any]) -> Select[Any]:
        """The same read of a queue's tasks by arrival, made to use the index of claims."""
        return statement

    def _has_id(self, task_id: ColumnElement[str]) -> ColumnElement[bool]:
        """Whether the id is that of a row; it is looked up in the primary key."""
        return self.table.c.task_id == task_id

    # -- claims -----------------------------------------------------------------------------------

    def _available(self, *columns: ColumnElement[Any]) -> Select[Any]:
        """The first available tasks of a queue, locked; what others hold is skipped."""
        tasks = self.table
        return (
            self._by_arrival(select(*columns))
            .where(
                tasks.c.queue == bindparam("of_queue", type_=String()),
                tasks.c.arrival_date <= bindparam("now", type_=UtcDateTime()),
            )
            # Not by the queue, too: MariaDB then finds nothing while the first row is locked.
            .order_by(tasks.c.arrival_date, tasks.c.task_id)
            .limit(bindparam("limit", type_=Integer()))
            .with_for_update(skip_locked=True)
        )

    def _taken(self) -> dict[str, Any]:
        tasks, until = self.table, bindparam("until", type_=UtcDateTime())
        return {
            "version": tasks.c.version + literal_column("1"),
            "claims": tasks.c.claims + literal_column("1"),
            "claimant": bindparam("by", type_=String()),
            "arrival_date": until,
            "lease_date": until,
            "modified_date": bindparam("now", type_=UtcDateTime()),
        }

    @memoized_property
    def _claim(self) -> Any:
        # Without it a planner may run the LIMIT again for each row of a join, and take more than
        # the LIMIT says.
        first = self._available(self.table.c.task_id).cte("first").prefix_with("MATERIALIZED")
        taken = update(self.table).where(self._has_id(first.c.task_id)).values(**self._taken())
        return taken.returning(*self.columns)

    def claim(self, connection: Connection, claim: Mapping[str, Any]) -> list[Sequence[Any]]:
        """Take available tasks of a queue, and return their rows.

        `claim` has `of_queue`, `limit`, `now`, `until`, and `by`, the claimant.
        """
        return self._rows(connection, self._claim, claim)

    def first_arrivals(
        self, connection: Connection, queues: Sequence[str]
    ) -> list[tuple[str, datetime]]:
        """The first arrival of each of the queues that has a task, past or to come."""
        found = list[tuple[str, datetime]]()
        for start in range(0, len(queues), IDS):
            part = queues[start : start + IDS]
            named = {f"queue{place}": queue for place, queue in enumerate(part)}
            rows = self._rows(connection, self._first_arrivals(len(part)), named)
            found += [(part[int(row[0])], row[1]) for row in rows]
        return found

    def _first_arrivals(self, count: int) -> Any:
        known: dict[int, Any] = self._known_firsts
        if count not in known:
            tasks = self.table
            firsts = []
            for place in range(count):
                first = (
                    self._by_arrival(
                        select(literal_column(str(place)).label("place"), tasks.c.arrival_date)
                    )
                    .where(tasks.c.queue == bindparam(f"queue{place}", type_=String()))
                    .order_by(tasks.c.queue, tasks.c.arrival_date)
                    .limit(literal_column("1"))
                    .subquery(f"first{place}")
                )
                firsts.append(select(first.c.place, first.c.arrival_date))
            known[count] = union_all(*firsts) if count > 1 else firsts[0]
        return known[count]

    @memoized_property
    def _known_firsts(self) -> dict[int, Any]:
        return {}

    def give_back(
        self, connection: Connection, tasks: Sequence[tuple[str, int]], now: datetime
    ) -> None:
        """Undo claims that nobody has seen, of tasks by (id, version)."""
        table = self.table
        undone = (
            update(table)
            .where(
                table.c.task_id == bindparam("of_task"), table.c.version == bindparam("of_version")
            )
            .values(
                version=table.c.version + 1,
                claims=table.c.claims - 1,
                claimant="",
                arrival_date=now,
                lease_date=null(),
                modified_date=now,
            )
        )
        rows = [{"of_task": task_id, "of_version": version} for task_id, version in sorted(tasks)]
        connection.execute(undone, rows)

    # -- modifications ----------------------------------------------------------------------------

    def present(self, connection: Connection, ids: Sequence[str]) -> list[Row[Any]]:
        """The tasks of these ids, without values, as a snapshot that locks nothing."""
        return self._named(connection, self._facts_of_ids, ids)

    def lock(
        self, connection: Connection, ids: Sequence[str], *, shared: bool = False
    ) -> list[Row[Any]]:
        """The tasks of these ids, without values, as they are now; they stay so.

        Other transactions may lock them as well if it is `shared`.
        """
        if len(ids) == 1 and not shared and use_of(connection) is not None:
            rows = self._rows(connection, self._locked_one, {"of_task": ids[0]})
            return [self._fact_row(*row) for row in rows]
        return self._named(connection, self._shared if shared else self._locked, sorted(ids))

    def _named(
        self, connection: Connection, statement: Select[Any], ids: Sequence[str]
    ) -> list[Row[Any]]:
        found = list[Row[Any]]()
        for start in range(0, len(ids), IDS):
            found += connection.execute(statement, {"ids": ids[start : start + IDS]})
        return found

    # Each is made once: that takes a good part of the time of its answer.

    @memoized_property
    def _facts_of_ids(self) -> Any:
        return self._of_ids(self.facts)

    @memoized_property
    def _all_of_ids(self) -> Any:
        return self._of_ids(self.columns)

    @memoized_property
    def _locked(self) -> Any:
        return self._facts_of_ids.order_by(self.table.c.task_id).with_for_update()

    @memoized_property
    def _locked_one(self) -> Any:
        named = self.table.c.task_id == bindparam("of_task", type_=String())
        return self._looked_up(select(*self.facts).where(named)).with_for_update()

    @memoized_property
    def _fact_row(self) -> Any:
        return namedtuple("TaskFacts", [column.name for column in self.facts])  # noqa: PYI024 -- its names are the table's

    @memoized_property
    def _shared(self) -> Any:
        return self._facts_of_ids.order_by(self.table.c.task_id).with_for_update(read=True)

    def _of_ids(self, columns: Sequence[ColumnElement[Any]]) -> Select[Any]:
        named = bindparam("ids", expanding=True, type_=String())
        return self._looked_up(select(*columns).where(self.table.c.task_id.in_(named)))

    def insert(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert tasks whose ids are new."""
        connection.execute(insert(self.table).inline(), one_or_all(rows))

    def insert_new(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """Insert tasks one by one; returns the ids that are taken."""
        return [
            row["task_id"]
            for row in rows
            if connection.execute(
                InsertNew(self.table).values(row).execution_options(preserve_rowcount=True)
            ).rowcount
            == 0
        ]

    def change(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write columns of locked tasks; each row has its `of_task`, and all the same others."""
        columns = [name for name in rows[0] if name != "of_task"]
        changed = (
            update(self.table)
            .where(self.table.c.task_id == bindparam("of_task"))
            .values(
                {name: bindparam(f"new_{name}", type_=self.table.c[name].type) for name in columns}
            )
        )
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

    @memoized_property
    def _gone(self) -> Any:
        return delete(self.table).where(
            self.table.c.task_id == bindparam("of_task", type_=String())
        )

    # -- reads ------------------------------------------------------------------------------------

    def by_ids(self, connection: Connection, ids: Sequence[str], *, values: bool) -> list[Row[Any]]:
        """The tasks of these ids, in any order."""
        return self._named(connection, self._all_of_ids if values else self._facts_of_ids, ids)

    def of_queue(
        self,
        connection: Connection,
        queue: str,
        *,
        seen_by: str | None,
        now: datetime,
        limit: int | None,
        values: bool,
    ) -> list[Row[Any]]:
        """The tasks of a queue by arrival; those that `seen_by` may work on, if given."""
        tasks = self.table
        found = select(*(self.columns if values else self.facts)).where(tasks.c.queue == queue)
        if seen_by is not None:
            found = found.where(or_(tasks.c.arrival_date <= now, tasks.c.claimant == seen_by))
        ordered = found.order_by(tasks.c.queue, tasks.c.arrival_date, tasks.c.task_id)
        return list(connection.execute(self._by_arrival(ordered.limit(limit))))
