"""The lengths and options that all tables keep to."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sqlalchemy import Index, MetaData, Table

NAME_LENGTH = 64
"""Longest node, bus, service and queue name, in characters."""
QUEUE_NAME_LENGTH = 2 * NAME_LENGTH + 1
CLASS_NAME_LENGTH = 255

OPTIONS: dict[str, Any] = {
    f"{database}_{option}": value
    for database in ("mysql", "mariadb")
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "row_format": "DYNAMIC"}.items()
}
"""Options of every table."""


@lru_cache
def in_schema(table: Table, schema: str | None) -> Table:
    """A shared table by its full name: callers find it whatever their search path is.

    Made once for all statements: SQLAlchemy keeps texts by the table object.
    """
    return table if schema is None else table.to_metadata(MetaData(), schema=schema)


def index_by_look_date(name: str, table: Table) -> Index:
    """The index of those rows of `table` that are to be looked at, by the date.

    On PostgreSQL it has no others: the planner, for whom all indices of a table that it takes for
    empty cost the same, would walk it to find a row by its key.
    """
    looked_at = table.c.look_date
    return Index(name, table.c.table_name, looked_at, postgresql_where=looked_at.is_not(None))
