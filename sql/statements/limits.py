"""The statements on `queue_limits`. Each node reads its table's limits once a second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, insert, select, update

from sql.tables import in_schema, queue_limits


class Limits:
    """With a `schema`, they find the table whatever the session's search path is."""

    def __init__(self, schema: str | None = None) -> None:
        self._table = in_schema(queue_limits, schema)

    def _one(self, table_name: str, lane: str) -> list[ColumnElement[bool]]:
        return [self._table.c.table_name == table_name, self._table.c.lane == lane]

    def of_table(self, connection: Connection, table_name: str) -> list[Row[Any]]:
        """The limits of one main table."""
        mine = self._table.c.table_name == table_name
        return list(connection.execute(select(self._table).where(mine)))

    def put(
        self, connection: Connection, table_name: str, lane: str, values: Mapping[str, Any]
    ) -> None:
        """Add a limit, or replace it; earlier starts at its rate still count.

        An IntegrityError says that another transaction has added it meanwhile.
        """
        mine = self._one(table_name, lane)
        there = select(self._table.c.lane).where(*mine).with_for_update()
        if connection.execute(there).first() is not None:
            connection.execute(update(self._table).where(*mine).values(**values))
        else:
            key = {"table_name": table_name, "lane": lane}
            connection.execute(insert(self._table).values(**key, **values))

    def remove(self, connection: Connection, table_name: str, lane: str) -> bool:
        """Delete a limit; False if there is none."""
        return (
            connection.execute(delete(self._table).where(*self._one(table_name, lane))).rowcount
            == 1
        )
