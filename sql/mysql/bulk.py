"""Bulk reads from MySQL and MariaDB."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, literal, literal_column

from sql.drivers.bulk import BulkReads, DriverRows, fetched
from sql.types import UtcDateTime


class MySQLBulkReads(BulkReads):
    """Dates cross as numbers: PyMySQL would take each date apart by a regular expression."""

    def column(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """See `BulkReads`."""
        if isinstance(column.type, UtcDateTime):
            return func.timestampdiff(literal_column("MICROSECOND"), literal("1970-01-01"), column)
        return column

    def read(self, connection: Connection, statement: Select[Any]) -> DriverRows:
        """See `BulkReads`."""
        return DriverRows(fetched(connection, statement), numeric_dates=True)
