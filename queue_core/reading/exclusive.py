"""One deletion of history at a time: truncation, archive or forgetting; a second is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from queue_core.errors import LifecycleError
from queue_core.storage.store import Store


@contextmanager
def exclusive_history(store: Store) -> Iterator[Connection]:
    """Hold the named lock of a history, and yield the connection that holds it.

    Raises LifecycleError if another holds it; nothing was deleted then.
    """
    table = store.config.history_table
    with store.database.holding(table) as connection:
        if connection is None:
            raise LifecycleError(
                f"{table}: another truncation, archive or forgetting is under way, by "
                f"{store.database.holder(table)}. Nothing was deleted.",
                table=table,
            )
        yield connection
