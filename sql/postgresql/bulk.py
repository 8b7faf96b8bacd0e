"""Bulk reads from PostgreSQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select

from sql.drivers.bulk import BulkReads, CsvText
from sql.drivers.hot_path import driver_errors


class PostgreSQLBulkReads(BulkReads):
    """By COPY as CSV, which readers parse: half as fast again as rows through the driver."""

    def read(self, connection: Connection, statement: Select[Any]) -> CsvText:
        """See `BulkReads`."""
        compiled = statement.compile(
            dialect=connection.dialect, compile_kwargs={"render_postcompile": True}
        )
        copying = f"COPY ({compiled}) TO STDOUT (FORMAT csv)"
        driver: Any = connection.connection.driver_connection
        with (
            driver_errors(connection, copying),
            driver.cursor() as cursor,
            cursor.copy(copying, compiled.params) as copy,
        ):
            return CsvText(b"".join(copy))
