"""The lock of a history: who archives, replays, erases or truncates excludes the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from history_pipeline.errors import ArchiveConflictError
from history_pipeline.rows.kind import kind_of
from sql.database import Database


@contextmanager
def history_lock(database: Database, table: str) -> Iterator[Connection]:
    """Lock a history. Yields the connection that holds the lock.

    Raises ArchiveConflictError if another one has it.
    """
    name = kind_of(table).history(table).name
    with database.holding(name) as connection:
        if connection is None:
            raise ArchiveConflictError(
                f"{name}: another archive, replay, erasure or truncation is under way, by "
                f"{database.holder(name)}. Nothing was done. Wait for its end."
            )
        yield connection
