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
    """The columns of a table in their order."""
    return [ArchivedColumn(str(column.name), _type(column)) for column in table.columns]


def _type(column: Column[Any]) -> str:
    return next(name for known, name in _TYPES if isinstance(column.type, known))


EVENT_DATE = "event_date"
"""The column that files are partitioned by: the day, in UTC, on which their entries ended."""
PAYLOAD = ("event_json", "event_bytes")
"""The columns of a payload. One of them has a value, unless the entry was erased."""
HISTORY_COLUMNS = columns_of(entry_tables("bus_events").history)
"""All columns of a history table, in order."""
READ_COLUMNS = (
    *("record_id", "queue_name", "class_name"),
    *("created_date", "effective_date", "started_date", "finished_date"),
    *("processing_owner", "lane", "processing_state"),
    *("error_count", "redispatch_count", "origin_id", "last_error"),
)
"""The columns that are read of a row of history: never its payload, headers or keys."""
ERROR_TYPE_LENGTH = 80
"""Characters of an error's type that figures tell apart."""
ERROR_TYPE = rf"^(?P<type>[\pL_][\pL\pN_.<>]{{0,{ERROR_TYPE_LENGTH - 1}}}(?::|\z))"
"""What stays of an error whose message goes: the name of its type, by which figures count."""
