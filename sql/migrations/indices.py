"""Indices of tables that may be in use.

PostgreSQL builds them beside the traffic, without a lock that writers wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alembic import context, op
from sqlalchemy import MetaData, Table, inspect

from sql.migrations.tables import may_be_there
from sql.postgresql.partitions import PostgreSQLPartitions


def create(name: str, table: str, columns: Sequence[str], **options: Any) -> None:
    """Create an index, unless a killed upgrade did.

    PostgreSQL may have left an invalid one, which is made anew.
    """
    if not _beside_traffic():
        if not (may_be_there() and _exists(name, table)):
            op.create_index(name, table, columns, **options)
        return
    for part in _partitions(table):
        create(f"{name[:53]}_{part[-9:]}", part, columns, **options)
    if _partitions(table):
        # It takes those of the partitions for its own, and builds none.
        op.create_index(name, table, columns, if_not_exists=True, **options)
        return
    with op.get_context().autocommit_block():
        op.drop_index(name, table, if_exists=True, postgresql_concurrently=True)
        op.create_index(name, table, columns, postgresql_concurrently=True, **options)


def replace(name: str, table: str, columns: Sequence[str], **options: Any) -> None:
    """Make an index anew under its name, with a condition; until then statements have the old one.

    A killed upgrade may have done so.
    """
    if not _beside_traffic():
        if not may_be_there() or _exists(name, table):
            op.drop_index(name, table)
        op.create_index(name, table, columns, **options)
        return
    if _has_condition(name, table):
        return
    create(f"{name}_new", table, columns, **options)
    op.drop_index(name, table)
    quote = op.get_context().dialect.identifier_preparer.quote
    op.execute(f"ALTER INDEX {quote(f'{name}_new')} RENAME TO {quote(name)}")


def _partitions(table: str) -> list[str]:
    """The partitions of a divided history."""
    past = Table(table, MetaData())
    return [one.name for one in PostgreSQLPartitions().found(op.get_bind(), past)]


def _exists(name: str, table: str) -> bool:
    return inspect(op.get_bind()).has_index(table, name)


def _has_condition(name: str, table: str) -> bool:
    return any(
        index["name"] == name and "postgresql_where" in index.get("dialect_options", {})
        for index in inspect(op.get_bind()).get_indexes(table)
    )


def _beside_traffic() -> bool:
    in_use: bool = context.config.attributes.get("in_use", False)
    return in_use and op.get_context().dialect.name == "postgresql"
