"""The statements on claims of `work_tasks`, with the parts that databases write differently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    String,
    Update,
    bindparam,
    func,
    literal_column,
    null,
    select,
    union_all,
    update,
)
from sqlalchemy.util import memoized_property

from sql.statements.base import HotStatements
from sql.tables import in_schema, work_limits, work_schedules, work_tasks
from sql.types import UtcDateTime

IDS = 500
"""The most ids, or queues, that a statement names."""

VALUES = ("value_json", "value_bytes")


class Coming(NamedTuple):
    """The first date in a queue: a task's arrival, and a schedule's due date, past or to come."""

    queue: str
    arrival: datetime | None
    due: datetime | None


class WorkClaims(HotStatements):
    """With a `schema`, they find the table whatever the session's search path is."""

    def __init__(self, schema: str | None = None) -> None:
        super().__init__()
        self.table = in_schema(work_tasks, schema)
        self.limits = in_schema(work_limits, schema)
        self.schedules = in_schema(work_schedules, schema)
        self.columns = list(self.table.c)
        self.facts = [column for column in self.columns if column.name not in VALUES]
        self.claim_index = "work_tasks_claim"

    # -- parts that databases write differently ---------------------------------------------------

    def _looked_up(self, statement: Select[Any]) -> Select[Any]:
        """The same read of rows named by ids, made to look them up in the primary key."""
        return statement

    def _by_arrival(self, statement: Select[Any]) -> Select[Any]:
        """The same read of a queue's tasks by arrival, made to use the index of claims."""
        return statement

    def _by_lease(self, statement: Select[Any]) -> Select[Any]:
        """The same read of a queue's leases, made to use their index."""
        return statement

    def _has_id(self, task_id: ColumnElement[str]) -> ColumnElement[bool]:
        """Whether the id is that of a row; it is looked up in the primary key."""
        return self.table.c.task_id == task_id

    def takes_at_once(self, limit: int) -> bool:
        """Whether one statement takes `limit` tasks and returns them in the order of arrival."""
        del limit
        return True

    # -- claims -----------------------------------------------------------------------------------

    def _available(self, *columns: ColumnElement[Any]) -> Select[Any]:
        """The first available tasks of a queue, locked; those that others hold are skipped."""
        tasks, now = self.table, bindparam("now", type_=UtcDateTime())
        # Read along with them: queues without a limit, or a schedule, pay no statement for it.
        limit = select(self.limits.c.queue).where(
            self.limits.c.queue == bindparam("unless_limited", type_=String())
        )
        due = select(self.schedules.c.queue).where(
            self.schedules.c.queue == bindparam("unless_due", type_=String()),
            self.schedules.c.next_due <= now,
        )
        return (
            self._by_arrival(select(*columns))
            .where(
                tasks.c.queue == bindparam("of_queue", type_=String()),
                tasks.c.arrival_date <= now,
                ~limit.exists(),
                ~due.exists(),
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
    def _claim(self) -> Update:
        # Without it a planner may run the LIMIT again for each row of a join, and take more than
        # the LIMIT says.
        first = self._available(self.table.c.task_id).cte("first").prefix_with("MATERIALIZED")
        taken = update(self.table).where(self._has_id(first.c.task_id)).values(**self._taken())
        return taken.returning(*self.columns)

    def claim(self, connection: Connection, claim: Mapping[str, Any]) -> list[Sequence[Any]]:
        """Take available tasks of a queue, and return their rows.

        `claim` has `of_queue`, `limit`, `now`, `until`, and `by`, the claimant. Nothing is taken if
        the queue `unless_limited` has a limit; who has locked that names none. Nothing is taken if
        the queue `unless_due` has a schedule that is due; who has seen to that names none.
        """
        return self._rows(connection, self._claim, claim)

    @memoized_property
    def _leases(self) -> Select[Any]:
        tasks = self.table
        read: list[ColumnElement[Any]] = [func.count(), func.min(tasks.c.lease_date)]
        return self._by_lease(select(*read)).where(
            tasks.c.queue == bindparam("of_queue", type_=String()),
            tasks.c.lease_date > bindparam("now", type_=UtcDateTime()),
        )

    def leases(
        self, connection: Connection, queue: str, now: datetime
    ) -> tuple[int, datetime | None]:
        """The number of tasks of a queue that are claimed now, and the end of their first lease."""
        [(count, first_end)] = self._rows(connection, self._leases, {"of_queue": queue, "now": now})
        return count, first_end

    def coming(self, connection: Connection, queues: Sequence[str]) -> list[Coming]:
        """The first date of each of the queues."""
        found = list[Coming]()
        for start in range(0, len(queues), IDS):
            part = queues[start : start + IDS]
            # The last is repeated: statements are kept for powers of two, not for each number.
            last = len(part) - 1
            count = min(IDS, 1 << last.bit_length())
            named = {f"queue{place}": part[min(place, last)] for place in range(count)}
            rows = self._rows(connection, self._coming(count), named)
            found += [Coming(part[int(row[0])], *row[1:]) for row in rows if int(row[0]) <= last]
        return found

    def _coming(self, count: int) -> Any:
        known: dict[int, Any] = self._known_firsts
        if count not in known:
            tasks, schedules = self.table, self.schedules
            firsts = []
            for place in range(count):
                queue = bindparam(f"queue{place}", type_=String())
                arrival = (
                    self._by_arrival(select(tasks.c.arrival_date))
                    .where(tasks.c.queue == queue)
                    .order_by(tasks.c.queue, tasks.c.arrival_date)
                    .limit(literal_column("1"))
                )
                due = select(func.min(schedules.c.next_due)).where(schedules.c.queue == queue)
                firsts.append(
                    select(
                        literal_column(str(place)).label("place"),
                        arrival.scalar_subquery().label("arrival"),
                        due.scalar_subquery().label("due"),
                    )
                )
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
