"""The statements on `queue_schedules`.

A firing is won by locking a row that is still as it was seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from sql.tables import in_schema, queue_schedules


class Schedules:
    """With a `schema`, they find the table whatever the session's search path is."""

    def __init__(self, schema: str | None = None) -> None:
        self._table = in_schema(queue_schedules, schema)

    def _key(self, table_name: str, queue_name: str, name: str) -> list[Any]:
        return [
            self._table.c.table_name == table_name,
            self._table.c.queue_name == queue_name,
            self._table.c.name == name,
        ]

    def of_queues(
        self, connection: Connection, table_name: str, queue_names: Sequence[str]
    ) -> list[Row[Any]]:
        """The schedules of some queues, by name."""
        statement = select(self._table).where(
            self._table.c.table_name == table_name,
            self._table.c.queue_name.in_(sorted(queue_names)),
        )
        return list(
            connection.execute(statement.order_by(self._table.c.queue_name, self._table.c.name))
        )

    def all_schedules(self, connection: Connection) -> list[Row[Any]]:
        """The schedules of all tables, by table, queue and name."""
        order = (self._table.c.table_name, self._table.c.queue_name, self._table.c.name)
        return list(connection.execute(select(self._table).order_by(*order)))

    def find(
        self,
        connection: Connection,
        table_name: str,
        queue_name: str,
        name: str,
        *,
        lock: bool = False,
    ) -> Row[Any] | None:
        """The row of a schedule."""
        statement = select(self._table).where(*self._key(table_name, queue_name, name))
        return connection.execute(statement.with_for_update() if lock else statement).one_or_none()

    def add(self, connection: Connection, values: Mapping[str, Any]) -> None:
        """Insert a schedule; an IntegrityError says that its name is taken."""
        connection.execute(insert(self._table).values(**values))

    def change(
        self,
        connection: Connection,
        table_name: str,
        queue_name: str,
        name: str,
        values: Mapping[str, Any],
    ) -> None:
        """Write columns of a schedule."""
        statement = update(self._table).where(*self._key(table_name, queue_name, name))
        connection.execute(statement.values(**values))

    def remove(self, connection: Connection, table_name: str, queue_name: str, name: str) -> bool:
        """Delete a schedule; False if there is none."""
        return (
            connection.execute(
                delete(self._table).where(*self._key(table_name, queue_name, name))
            ).rowcount
            == 1
        )
