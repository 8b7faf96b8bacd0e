"""Changes of all entries that match a filter, in batches of one transaction each.

The tables themselves say how far a change has come: an entry that was retried, discarded or removed
matches no more. So a call that was killed is repeated, and goes on where it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import msgspec
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError

from queue_core.errors import DatabaseUnreachableError, ForkedError, StickybusError
from queue_core.model.entry import Entry
from queue_core.reading.changes import Change
from queue_core.reading.truncation import Progress
from queue_core.runtime.arguments import function
from queue_core.runtime.clock import in_utc
from queue_core.storage.arguments import flag
from queue_core.storage.filter import Filter, Where

BATCH = 100
"""Entries of one transaction: as long as some tens of outcomes, so that nodes go on beside it."""
WINDOW = 20_000
"""Rows that one statement reads at most while entries are looked for."""
PREVIEW = 10
"""Entries that a preview shows."""

Stop: TypeAlias = threading.Event | Callable[[], bool]
"""Ends a change after the batch under way: an event that is set, or a function that says True."""


def check_calls(progress: Progress | None, stop: Stop | None) -> None:
    """Raise ConfigurationError for an object that can't be called."""
    if progress is not None:
        function(progress, key="progress", arguments=2)
    if stop is not None and not isinstance(stop, threading.Event):
        function(stop, key="stop", arguments=0)


def is_set(stop: Stop | None) -> bool:
    """Whether a change is to end."""
    if stop is None:
        return False
    return stop.is_set() if isinstance(stop, threading.Event) else bool(stop())


class Unchanged(msgspec.Struct, frozen=True):
    """An entry that a bulk change could not change.

    Attributes:
        record_id: Its id.
        error: The reason, in one line.
    """

    record_id: int
    error: str


class BulkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a change of all entries that match.

    Attributes:
        table: The main table.
        matched: Entries that matched when the call looked for them; if it was stopped while it
            looked, those found until then.
        changed: Those of them that were changed; 0 in a dry run.
        skipped: Those that matched no more when their turn came, because another call had changed
            them, or a node had started them.
        errors: Those that could not be changed.
        stopped: Whether it was stopped before its end. Call it again to go on.
        first: In a dry run the first 10 entries, by id; else empty.
    """

    table: str
    matched: int
    changed: int = 0
    skipped: int = 0
    errors: tuple[Unchanged, ...] = ()
    stopped: bool = False
    first: tuple[Entry, ...] = ()


class Bulk:
    """One call: finds the matching entries, then changes them batch by batch."""

    def __init__(
        self,
        change: Change,
        *,
        queue_name: str | None,
        wanted: Filter,
        wake: Callable[[], object],
        progress: Progress | None = None,
        stop: Stop | None = None,
    ) -> None:
        """`queue_name`: None for all queues of the table. `wake` tells the nodes of a batch."""
        check_calls(progress, stop)
        self._change = change
        self._store = change.store
        self._where = wanted.conditions(queue_name)
        self._wanted = wanted
        self._wake = wake
        self._progress = progress
        self._stop = stop

    def run(self, *, dry_run: bool) -> BulkResult:
        """Change everything that matches, or only show it."""
        only_shown = flag(dry_run, "dry_run")
        ids = self.ids()
        table, matched = self._store.config.table, len(ids)
        if only_shown:
            first = self._entries(ids[:PREVIEW])
            return BulkResult(table=table, matched=matched, stopped=self._is_stopped(), first=first)
        changed = skipped = 0
        errors, stopped = list[Unchanged](), self._is_stopped()
        for start in range(0, matched, BATCH):
            if stopped := self._is_stopped():
                break
            batch = ids[start : start + BATCH]
            done, failed = self._batch(batch)
            changed += done
            skipped += len(batch) - done - len(failed)
            errors += failed
            if self._progress is not None:
                self._progress(start + len(batch), matched)
        return BulkResult(
            table=table,
            matched=matched,
            changed=changed,
            skipped=skipped,
            errors=tuple(errors),
            stopped=stopped,
        )

    def ids(self) -> list[int]:
        """The ids of the entries that match now, ascending.

        Entries that come later get higher ids, so that a busy queue lets the search end, and a
        retry that fails again is not retried once more.
        """
        found, windows = list[int](), self._windows()
        for where in self._where:
            for window in windows:
                if self._is_stopped():
                    return found
                found += self._store.reaching(partial(self._page, where, window))
        return found

    def _windows(self) -> list[tuple[int, int] | None]:
        if self._wanted.record_ids is not None:
            return [None]
        return list(self._store.reaching(partial(self._store.database.fetch, self._bounded)))

    def _bounded(self, connection: Connection) -> list[tuple[int, int] | None]:
        statements, past = self._store.statements, self._change.past
        since = self._wanted.finished_since
        bounds = statements.id_bounds(connection, past=past)
        lowest = (
            None
            if since is None
            else statements.lowest_since(connection, in_utc(since, key="finished_since"))
        )
        if bounds is None or (since is not None and lowest is None):
            return []
        first_id, last_id = bounds
        first_id = first_id if lowest is None else lowest
        windows = list[tuple[int, int] | None]()
        while first_id <= last_id:
            end = statements.range_page(
                connection, first_id=first_id, last_id=last_id, limit=WINDOW, past=past
            )
            windows.append((first_id, end))
            first_id = end + 1
        return windows

    def _page(self, where: Where, window: tuple[int, int] | None) -> list[int]:
        change = self._change
        return self._store.database.fetch(
            lambda connection: self._store.statements.matching(
                connection, past=change.past, where=where, window=window, unretried=change.past
            )
        )

    def _entries(self, ids: Sequence[int]) -> tuple[Entry, ...]:
        where = Filter(record_ids=ids).conditions(None)
        return tuple(
            self._store.read(
                None,
                self._store.config.table,
                lambda connection: self._store.find(
                    connection, past=self._change.past, where=where
                ),
            )
        )

    def _is_stopped(self) -> bool:
        return is_set(self._stop)

    def _batch(self, ids: Sequence[int]) -> tuple[int, list[Unchanged]]:
        """Change some entries; if one of them spoils the transaction, each in its own."""
        try:
            done = self._store.write(
                None, self._store.config.table, lambda inner: self._change.apply(inner, ids)
            )
        except (DatabaseUnreachableError, ForkedError):
            raise
        except (DBAPIError, StickybusError, ValueError, TypeError) as error:
            if len(ids) > 1:
                parts = [self._batch([record_id]) for record_id in ids]
                return sum(done for done, _ in parts), [one for _, some in parts for one in some]
            if isinstance(error, IntegrityError) and self._change.past:
                return 0, []  # another call has just taken its turn
            cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
            return 0, [Unchanged(ids[0], " ".join(f"{type(cause).__name__}: {cause}".split()))]
        if done:
            self._wake()
        return done, []
