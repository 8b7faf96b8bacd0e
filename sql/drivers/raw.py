"""Callers' connections by a database's own driver, with no SQLAlchemy around them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection


class UnusableConnectionError(ValueError):
    """A driver's connection is closed, or belongs to another thread.

    Its text goes on after the words "the connection passed in".
    """


class RawDriver:
    """Asks callers' connections by one database's driver. It never touches their transactions."""

    module: str
    """The module that its connections come from."""
    place = "database"
    """The word for the thing that a connection leads to, in messages."""

    def tuple_cursor(self, driver: Any, *arguments: Any, **options: Any) -> Any:
        """A cursor whose rows are tuples, whatever row factory the connection's owner has set."""
        raise NotImplementedError

    def place_of(self, driver: Any) -> str | None:
        """The name of the database that a driver's connection is to.

        Raises UnusableConnectionError.
        """
        raise NotImplementedError

    def place_of_connection(self, connection: Connection) -> str | None:
        """The same of a connection of SQLAlchemy, by whatever driver.

        An engine's URL does not tell it if the application connects by itself (`creator`).
        """
        raise NotImplementedError

    def autocommits(self, connection: Connection, *, raw: bool) -> bool:
        """Whether each statement of a caller's connection commits by itself.

        `raw`: the caller passed the driver's connection, which SQLAlchemy only wraps.
        """
        del raw
        driver: Any = connection.connection.dbapi_connection
        return connection.dialect.detect_autocommit_setting(driver)

    def has_two_phases(self, driver: Any) -> bool:
        """Whether the transaction of a driver's connection is to be prepared."""
        del driver
        return False
