"""The statements on `queue_waits`: entries that wait for others.

Rows are found without locks, and changed by their primary key. A search that locks would wait, on
InnoDB, for rows that another transaction has inserted, and that may stay open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from sql.statements.base import batches
from sql.tables import in_schema, queue_waits


class Wait(NamedTuple):
    """The waits: the waiting and the awaited entries, by their ids."""

    waiter_id: int
    awaited_id: int


class Waits:
    """With a `schema`, they find the table whatever the session's search path is."""

    def __init__(self, schema: str | None = None) -> None:
        self.table = in_schema(queue_waits, schema)

    def add(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Enter waits."""
        connection.execute(insert(self.table).inline(), list(rows))

    def change(
        self,
        connection: Connection,
        table_name: str,
        waits: Sequence[Wait],
        values: Mapping[str, Any],
    ) -> None:
        """Write `values` into rows."""
        if waits:
            changed = update(self.table).where(*_named(self.table)).values(**values)
            connection.execute(changed, _ids(table_name, waits))

    def remove(self, connection: Connection, table_name: str, waits: Sequence[Wait]) -> None:
        """Delete rows."""
        if waits:
            removed = delete(self.table).where(*_named(self.table))
            connection.execute(removed, _ids(table_name, waits))

    def lock_free(
        self, connection: Connection, table_name: str, waits: Sequence[Wait]
    ) -> list[Wait]:
        """Lock rows, and return those of them that nobody else holds."""
        found = select(self.table.c.waiter_id).where(*_named(self.table))
        locked = found.with_for_update(skip_locked=True)
        return [
            wait
            for wait in sorted(waits)
            if connection.execute(locked, _ids(table_name, [wait])[0]).first() is not None
        ]

    def of_awaited(
        self, connection: Connection, table_name: str, *, ids: Sequence[int]
    ) -> list[Row[Any]]:
        """The waits for entries with these ids, by the ids of those that wait."""
        return self._having(connection, table_name, self.table.c.awaited_id, ids)

    def of_waiters(
        self, connection: Connection, table_name: str, *, ids: Sequence[int]
    ) -> list[Row[Any]]:
        """The waits of entries with these ids."""
        return self._having(connection, table_name, self.table.c.waiter_id, ids)

    def _having(
        self,
        connection: Connection,
        table_name: str,
        column: ColumnElement[int],
        ids: Sequence[int],
    ) -> list[Row[Any]]:
        found = list[Row[Any]]()
        for batch in batches(ids):
            found += connection.execute(
                select(self.table).where(self.table.c.table_name == table_name, column.in_(batch))
            )
        return sorted(found, key=lambda row: (row.waiter_id, row.awaited_id))

    def _due(self, table_name: str, now: datetime, limit: int) -> Select[Any]:
        table = self.table
        due = select(table).where(table.c.table_name == table_name, table.c.look_date <= now)
        return due.order_by(table.c.look_date).limit(limit)

    def are_due(self, connection: Connection, table_name: str, *, now: datetime) -> bool:
        """Whether there is anything to look at."""
        return connection.execute(self._due(table_name, now, 1)).first() is not None

    def lock_due(
        self, connection: Connection, table_name: str, *, now: datetime, limit: int
    ) -> list[Row[Any]]:
        """Lock and return rows whose look date has come. Those that others hold are skipped."""
        due = self._due(table_name, now, limit).with_for_update(skip_locked=True)
        return list(connection.execute(due))

    def counts(self, connection: Connection, table_name: str) -> tuple[int, int]:
        """The number of waiting entries, and of those among them that wait for a person."""
        table = self.table
        waiters = func.count(table.c.waiter_id.distinct())
        of_table = select(waiters).where(table.c.table_name == table_name)
        held = of_table.where(table.c.look_date.is_(None))
        return (
            int(connection.execute(of_table).scalar_one()),
            int(connection.execute(held).scalar_one()),
        )


def _named(table: Table) -> list[ColumnElement[bool]]:
    return [
        table.c.table_name == bindparam("of_table"),
        table.c.waiter_id == bindparam("of_waiter"),
        table.c.awaited_id == bindparam("of_awaited"),
    ]


def _ids(table_name: str, waits: Sequence[Wait]) -> list[dict[str, Any]]:
    return [
        {"of_table": table_name, "of_waiter": waiter_id, "of_awaited": awaited_id}
        for waiter_id, awaited_id in sorted(waits)
    ]
