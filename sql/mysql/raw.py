"""Callers' connections of PyMySQL."""

from __future__ import annotations

from typing import Any

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
