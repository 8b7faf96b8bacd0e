"""Reads of many rows, in the form that a driver gives fastest.

SQLAlchemy makes no object for a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select

from sql.drivers.hot_path import driver_errors


@dataclass(frozen=True)
class DriverRows:
    """The driver's own rows; dates are texts in UTC, or numbers of microseconds since 1970."""

    rows: Sequence[Sequence[Any]]
    numeric_dates: bool = False


@dataclass(frozen=True)
class CsvText:
    """Rows as CSV.

    NULL is an empty field, an empty text a pair of quotes. Bytes are hexadecimal after a prefix of
    two.
    """

    text: bytes


class BulkReads:
    """Reads from one database. A statement has columns as `column` writes them."""

    def column(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """A column as a bulk read asks for it."""
        return column

    def read(self, connection: Connection, statement: Select[Any]) -> DriverRows | CsvText:
        """The rows of a statement. Raises the driver's errors as SQLAlchemy's."""
        return DriverRows(fetched(connection, statement))


def fetched(connection: Connection, statement: Select[Any]) -> Sequence[Sequence[Any]]:
    """The driver's own rows."""
    result = connection.execute(statement)
    # An error, too, must leave no cursor open: it would keep its snapshot on a connection that is
    # used again.
    with closing(result), driver_errors(connection, "(by the driver)"):
        rows: Sequence[Sequence[Any]] = result.cursor.fetchall()
    return rows
