"""The truncation of a history, while the queue runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from queue_core.errors import InvalidPostError
from queue_core.model.states import State, States, several
from queue_core.reading.exclusive import exclusive_history
from queue_core.runtime.arguments import function
from queue_core.runtime.clock import in_utc
from queue_core.runtime.exact import exact_text
from queue_core.runtime.log import get_logger
from queue_core.runtime.shown import shown
from queue_core.storage.store import Store
from sql import partitioning
from sql.transient import EMPTYING

log = get_logger(__name__)

DELETE_BATCH = 2_000
"""Rows that one transaction deletes."""
RECENT = timedelta(seconds=60)
"""Outcomes older than this have committed.

They are counted before the lock, the others under it.
"""

Progress = Callable[[int, int], None]
"""Called with (rows deleted so far, rows to be deleted).

The second is the first if the rows can't be counted in a statement's time.
"""


class Truncation:
    """Deletes history of all queues of a table."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(
        self,
        *,
        before: datetime | None = None,
        states: States | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Delete history.

        Rows that ended at `before` (aware) or later stay. Rows in other states than `states` stay.
        The call empties the whole table at once if neither of the two is given. Each try
        waits at most 50 ms for the exclusive lock. Outcomes written meanwhile wait for that lock.
        Otherwise, and on databases that can't do so, partitions that are to go as a whole are
        dropped, and the other rows go in batches of `DELETE_BATCH`. Each batch is a transaction.
        Entries in the main table are never touched.

        Returns:
            The number of deleted rows.

        Raises:
            LifecycleError: Something else deletes or archives this history. Nothing was deleted.
        """
        limit = None if before is None else in_utc(before, key="before")
        wanted = None if states is None else _terminal(states)
        if progress is not None:
            function(progress, key="progress")
        with exclusive_history(self._store) as locked:
            self._undo_division(locked)
            if limit is None and wanted is None:
                emptied = self._empty(progress)
                if emptied is not None:
                    return emptied
            return self._delete(locked, limit, wanted, progress)

    def _undo_division(self, locked: Connection) -> None:
        """Undo what a division that was cut off has left: soon no outcome could be written."""
        store, past = self._store, self._store.statements.past
        with _unless_refused("division_not_undone", past.name):
            partitioning.drop_leftover(store.database, locked, past)

    def _empty(self, progress: Progress | None) -> int | None:
        store, statements = self._store, self._store.statements
        recent_since = store.now() - RECENT
        older = self._count(recent_since)

        def once() -> int | None:
            with store.database.begin() as connection:
                return statements.empty_history(connection, recent_since)

        guessed = 0 if older is not None else store.database.fetch(statements.guessed_history)
        recent: int | None = None
        with _unless_refused("history_not_emptied", statements.past.name):
            recent = store.database.persist(once, EMPTYING)
        if recent is None:
            return None
        rows = max(guessed, recent) if older is None else older + recent
        if progress is not None:
            progress(rows, rows)
        return rows

    def _delete(
        self,
        locked: Connection,
        before: datetime | None,
        states: list[str] | None,
        progress: Progress | None,
    ) -> int:
        store, statements = self._store, self._store.statements
        # Entries that end from now on stay, else a busy queue would never let this end.
        now = store.now()
        until = now if before is None else min(before, now)
        deleted = total = 0
        if states is None:
            past = statements.past
            dropped = partitioning.drop_ended(store.database, locked, past, before=until)
            with _unless_refused("partition_not_dropped", past.name):
                for rows in dropped:
                    deleted += rows
        if progress is not None:
            total = deleted + (self._count(until, states) or 0)
            progress(deleted, total)
        last: int | None = None  # rows that stay are passed over once, not for each page
        while True:
            ids = store.database.fetch(
                partial(
                    statements.history_page,
                    after=last,
                    before=until,
                    states=states,
                    limit=DELETE_BATCH,
                )
            )
            if not ids:
                return deleted
            last = ids[-1]
            deleted += store.database.write(
                partial(statements.delete_history, ids=ids, before=until, states=states)
            )
            if progress is not None:
                progress(deleted, max(total, deleted))

    def _count(self, before: datetime, states: list[str] | None = None) -> int | None:
        """The rows that are to go; None if they can't be counted in a statement's time."""
        counted = partial(self._store.statements.count_history, before=before, states=states)
        try:
            return self._store.database.fetch(counted)
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            return None


@contextmanager
def _unless_refused(event: str, table: str) -> Iterator[None]:
    """Log an error of the database in this block, and go on: batches need no such change.

    The role may not change tables, or a lock was not had. Without the connection, which holds the
    history's lock, nothing goes on.
    """
    try:
        yield
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        log.warning(event, table=table, error=str(error.orig))


def _terminal(states: States) -> list[str]:
    try:
        found = [State(exact_text(state) or "") for state in several(states)]
    except (TypeError, ValueError):
        found = [State.AVAILABLE]
    if not all(state.terminal for state in found):
        allowed = ", ".join(state.value for state in State if state.terminal)
        raise InvalidPostError(
            f"states={shown(states)} is not allowed. Allowed: one or several of {allowed}. Nothing "
            "was deleted.",
            key="states",
            value=shown(states),
        )
    return [state.value for state in found]
