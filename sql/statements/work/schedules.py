"""The statements on `work_schedules`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from sql.statements.work.claims import IDS
from sql.tables import in_schema, work_schedules


class WorkSchedules:
    """With a `schema`, they find the table whatever the session's search path is."""

    def __init__(self, schema: str | None = None) -> None:
        self.table = in_schema(work_schedules, schema)

    def _key(self, queue: str, name: str) -> list[Any]:
        return [self.table.c.queue == queue, self.table.c.name == name]

    def find(self, connection: Connection, queue: str, name: str) -> Row[Any] | None:
        """The row of a schedule, locked."""
        mine = select(self.table).where(*self._key(queue, name))
        return connection.execute(mine.with_for_update()).one_or_none()

    def dates(self, connection: Connection, queue: str) -> list[tuple[str, datetime]]:
        """The next dates of the schedules of a queue, by name; they are not locked."""
        schedules = self.table.c
        coming = select(schedules.name, schedules.next_due).where(
            schedules.queue == queue, schedules.next_due.is_not(None)
        )
        rows = connection.execute(coming.order_by(schedules.name))
        return [(row.name, row.next_due) for row in rows]

    def overdue(self, connection: Connection, since: datetime, limit: int) -> list[Row[Any]]:
        """The first schedules, of all queues, that were due by then: queue, name and date."""
        schedules = self.table.c
        late = select(schedules.queue, schedules.name, schedules.next_due).where(
            schedules.next_due <= since
        )
        ordered = late.order_by(schedules.next_due, schedules.queue, schedules.name)
        return list(connection.execute(ordered.limit(limit)))

    def due(
        self, connection: Connection, queue: str, names: Sequence[str], now: datetime
    ) -> list[Row[Any]]:
        """Those of these schedules of a queue that are due, by name, locked: other finders wait.

        The others of the queue are not locked.
        """
        schedules, found = self.table, list[Row[Any]]()
        for start in range(0, len(names), IDS):
            passed = select(schedules).where(
                schedules.c.queue == queue,
                schedules.c.name.in_(names[start : start + IDS]),
                schedules.c.next_due <= now,
            )
            found += connection.execute(passed.order_by(schedules.c.name).with_for_update())
        return found

    def of(self, connection: Connection, queues: Sequence[str]) -> list[Row[Any]]:
        """The schedules of these queues, or all if there are none, by queue and name."""
        read = select(self.table).order_by(self.table.c.queue, self.table.c.name)
        if not queues:
            return list(connection.execute(read))
        found = list[Row[Any]]()
        for start in range(0, len(queues), IDS):
            named = self.table.c.queue.in_(queues[start : start + IDS])
            found += connection.execute(read.where(named))
        return found

    def add(self, connection: Connection, values: Mapping[str, Any]) -> None:
        """Insert a schedule; an IntegrityError says that its name is taken."""
        connection.execute(insert(self.table).values(**values))

    def change(
        self, connection: Connection, queue: str, name: str, values: Mapping[str, Any]
    ) -> None:
        """Write columns of a schedule."""
        connection.execute(update(self.table).where(*self._key(queue, name)).values(**values))

    def remove(self, connection: Connection, queue: str, name: str) -> bool:
        """Delete a schedule; False if there is none."""
        gone = delete(self.table).where(*self._key(queue, name))
        return connection.execute(gone).rowcount == 1
