"""An INSERT that leaves existing rows alone."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Insert
from sqlalchemy.ext.compiler import compiles


class InsertNew(Insert):
    """Inserts no row whose primary key is taken, and raises no error for it.

    It waits for a transaction that has such a row under way. `rowcount` tells how many rows one
    statement inserted.
    """

    inherit_cache = True


@compiles(InsertNew)
def _on_conflict(element: InsertNew, compiler: Any, **options: Any) -> str:
    return f"{compiler.visit_insert(element, **options)} ON CONFLICT DO NOTHING"
