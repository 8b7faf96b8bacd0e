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

    def due(self, connection: Connection, queue: str, now: datetime) -> list[Row[Any]]:
        """The schedules of a queue that are due, by name, locked: whoever finds them waits."""
        schedules = self.table
        passed = select(schedules).where(schedules.c.queue == queue, schedules.c.next_due <= now)
        return list(connection.execute(passed.order_by(schedules.c.name).with_for_update()))

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
