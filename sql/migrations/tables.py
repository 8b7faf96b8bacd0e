"""Tables and columns that a killed upgrade may have made already.

It may where each change commits by itself.
"""

from __future__ import annotations

from typing import Any

from alembic import context, op
from sqlalchemy import Column, inspect
from sqlalchemy.schema import SchemaItem


def create(name: str, *items: SchemaItem, **options: Any) -> None:
    """Create a table, unless one with these columns is there.

    One with other columns is an error of the database.
    """
    if _columns(name) != {item.name for item in items if isinstance(item, Column)}:
        op.create_table(name, *items, **options)


def add_columns(table: str, *columns: Column[Any]) -> None:
    """Add those of the columns that are not there."""
    there = _columns(table)
    for column in columns:
        if column.name not in there:
            op.add_column(table, column)


def may_be_there() -> bool:
    """Whether the tables of a migration may be there before its version is."""
    commits: bool = context.config.attributes.get("ddl_commits", False)
    return commits


def _columns(table: str) -> set[str]:
    if not may_be_there():
        return set()
    inspector = inspect(op.get_bind())
    return (
        {column["name"] for column in inspector.get_columns(table)}
        if inspector.has_table(table)
        else set()
    )
