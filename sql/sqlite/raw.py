"""Callers' connections of the module sqlite3."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection

from sql.drivers.raw import RawDriver, UnusableConnectionError

_FILES = "PRAGMA database_list"


def commits_each(driver: sqlite3.Connection) -> bool:
    """Whether it commits each statement by itself, unless a transaction was begun by hand."""
    # The attribute is of Python 3.12; -1: `isolation_level` says it, as it did before.
    mode = getattr(driver, "autocommit", -1)
    return driver.isolation_level is None if mode == -1 else bool(mode)


class SQLiteRaw(RawDriver):
    """Connections of sqlite3, and by SQLAlchemy those of aiosqlite."""

    module = "sqlite3"
    place = "the file"

    def tuple_cursor(self, driver: Any, *arguments: Any, **options: Any) -> Any:
        """See `RawDriver`."""
        cursor = driver.cursor(*arguments, **options)
        cursor.row_factory = None
        return cursor

    def place_of(self, driver: Any) -> str:
        """See `RawDriver`."""
        try:
            return _main(self.tuple_cursor(driver).execute(_FILES))
        except sqlite3.ProgrammingError as error:
            raise UnusableConnectionError(f"can't be used: {error}") from error

    def place_of_connection(self, connection: Connection) -> str:
        """See `RawDriver`."""
        driver = connection.connection.driver_connection
        if isinstance(driver, sqlite3.Connection):
            return self.place_of(driver)
        # aiosqlite's proxy answers through SQLAlchemy alone.
        return _main(connection.exec_driver_sql(_FILES))

    def autocommits(self, connection: Connection, *, raw: bool) -> bool:
        """See `RawDriver`."""
        driver: Any = connection.connection.driver_connection
        if not isinstance(driver, sqlite3.Connection):
            return super().autocommits(connection, raw=raw)
        # SQLAlchemy's advice for SQLite is to set None and to begin by an event, so that None alone
        # says nothing.
        if not commits_each(driver):
            return False
        if not raw and not connection.in_transaction():
            connection.exec_driver_sql("SELECT 1")  # so that the event has begun it
        return not driver.in_transaction


def _main(files: Iterable[Any]) -> str:
    path = next((path for _, name, path in files if name == "main"), "")
    return os.path.realpath(path) if path else ":memory:"
