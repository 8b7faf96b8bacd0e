"""The columns of history by name and type, as manifests name them: without Spark and Arrow."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import BigInteger, Column, Integer, LargeBinary, String, Table

from sql.tables import entry_tables
from sql.types import UtcDateTime

_TYPES: tuple[tuple[type[Any], str], ...] = (
    (UtcDateTime, "timestamp"),
    # A BigInteger is an Integer, too.
    (BigInteger, "bigint"),
    (Integer, "int"),
    (LargeBinary, "binary"),
    (String, "string"),
)
"""SQLAlchemy's types and Spark's names for them, the more special first."""


class ArchivedColumn(msgspec.Struct, frozen=True):
    """A column with its type as Spark names it."""

    name: str
    type: str


def columns_of(table: Table) -> list[ArchivedColumn]:
    """The columns of an entry table in their order."""
    return [ArchivedColumn(str(column.name), _type(column)) for column in table.columns]


def _type(column: Column[Any]) -> str:
    return next(name for known, name in _TYPES if isinstance(column.type, known))


HISTORY_COLUMNS = columns_of(entry_tables("bus_events").history)
"""All columns of a history table, in order."""
