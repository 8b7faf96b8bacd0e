"""Callers' connections of PyMySQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from sql.drivers.raw import RawDriver, UnusableConnectionError


class MySQLRaw(RawDriver):
    """Connections of PyMySQL."""

    module = "pymysql"

    def tuple_cursor(self, driver: Any, *arguments: Any, **options: Any) -> Any:
        """See `RawDriver`."""
        from pymysql.cursors import Cursor

        return driver.cursor(*(arguments or (Cursor,)), **options)

    def place_of(self, driver: Any) -> str | None:
        """See `RawDriver`."""
        if not driver.open:
            raise UnusableConnectionError("is closed")
        name: str | bytes | None = driver.db
        return name.decode() if isinstance(name, bytes) else name

    def place_of_connection(self, connection: Connection) -> str | None:
        """See `RawDriver`. Our statements name it, so that a `USE` changes nothing."""
        named = connection.engine.url.database
        return named or connection.exec_driver_sql("SELECT DATABASE()").scalar()
