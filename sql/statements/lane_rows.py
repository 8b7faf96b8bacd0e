"""The statements on a table with at most one row for each lane of a main table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, delete, insert, select, update

from sql.tables import in_schema


class LaneRows:
    """With a `schema`, they find the table whatever the session's search path is."""

    def __init__(self, table: Table, schema: str | None) -> None:
        self._table = in_schema(table, schema)

    def of_table(self, connection: Connection, table_name: str) -> list[Row[Any]]:
        """The rows of one main table."""
        mine = self._table.c.table_name == table_name
        return list(connection.execute(select(self._table).where(mine)))

    def put(
        self, connection: Connection, table_name: str, lane: str, values: Mapping[str, Any]
    ) -> None:
        """Add a row, or change it: a column that `values` does not name stays as it is.

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
        """Delete a row; False if there is none."""
        mine = self._one(table_name, lane)
        return connection.execute(delete(self._table).where(*mine)).rowcount == 1

    def _one(self, table_name: str, lane: str) -> list[ColumnElement[bool]]:
        return [self._table.c.table_name == table_name, self._table.c.lane == lane]
