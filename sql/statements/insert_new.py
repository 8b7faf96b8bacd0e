"""An INSERT that leaves existing rows alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Insert, Table
from sqlalchemy.ext.compiler import compiles


class InsertNew(Insert):
    """Inserts no row whose primary key is taken, and raises no error for it.

    It waits for a transaction that has such a row under way. `rowcount` tells how many rows one
    statement inserted.
    """

    inherit_cache = True


def inserted(connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row by `InsertNew`; False if it was left out."""
    insert = InsertNew(table).values(row).execution_options(preserve_rowcount=True)
    return connection.execute(insert).rowcount == 1


@compiles(InsertNew)
def _on_conflict(element: InsertNew, compiler: Any, **options: Any) -> str:
    return f"{compiler.visit_insert(element, **options)} ON CONFLICT DO NOTHING"
