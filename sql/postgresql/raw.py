"""Callers' connections of psycopg."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from sql.drivers.raw import RawDriver, UnusableConnectionError


class PostgreSQLRaw(RawDriver):
    """Connections of psycopg 3."""

    module = "psycopg"

    def tuple_cursor(self, driver: Any, *arguments: Any, **options: Any) -> Any:
        """See `RawDriver`."""
        from psycopg.rows import tuple_row

        options.setdefault("row_factory", tuple_row)
        return driver.cursor(*arguments, **options)

    def place_of(self, driver: Any) -> str:
        """See `RawDriver`."""
        if driver.closed:
            raise UnusableConnectionError("is closed")
        return str(driver.info.dbname)

    def place_of_connection(self, connection: Connection) -> str | None:
        """See `RawDriver`."""
        info = getattr(connection.connection.driver_connection, "info", None)
        if info is not None:  # psycopg's, which knows what it was told
            return str(info.dbname)
        named = connection.engine.url.database
        return named or connection.exec_driver_sql("SELECT current_database()").scalar()

    def has_two_phases(self, driver: Any) -> bool:
        """See `RawDriver`."""
        return getattr(driver, "_tpc", None) is not None  # `tpc_begin` tells it by nothing else
