"""A retry by hand whose end somebody waits for."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from uuid import uuid4

import msgspec
from sqlalchemy import ColumnElement, FromClause, or_

from queue_core.finishing.feeds import Ended, Feed, Feeds
from queue_core.model.entry import Entry
from queue_core.model.states import TERMINAL_STATES, State
from queue_core.storage.filter import Where
from queue_core.storage.store import Store

POLL_SECONDS = 0.25
"""The pause between two looks at the progress on other nodes.

An end in this process is known at once.
"""

_ENDS = TERMINAL_STATES - {State.REAPED}


class RetryOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a retry when the wait for it ended.

    Attributes:
        record_id: The id of the new entry.
        state: PROCESSED, FAILED or REMOVED if it has ended; else where it stands: AVAILABLE,
            WAITING or IN_PROCESSING, or REAPED if its node has just died. None: it has ended, and
            history no longer has it.
        error_count: Its failed runs until then.
        last_error: Type, message and traceback if it is FAILED, else None.
    """

    record_id: int
    state: State | None
    error_count: int = 0
    last_error: str | None = None

    @property
    def ended(self) -> bool:
        """Whether it has ended; if not, it goes on, and `explain` tells its obstacles."""
        return self.state is None or self.state in _ENDS


class AwaitedRetry:
    """Retries one entry and watches the new one."""

    def __init__(self, store: Store, feeds: Feeds) -> None:
        self._store = store
        self._feeds = feeds
        self._watched = 0
        """The id under which it lives."""

    def run(self, retry: Callable[[], int], timeout_seconds: float) -> RetryOutcome:
        """Call `retry`, which returns the new id, and wait for the end of that entry.

        A run that failed and is to be repeated later than the time that is left ends the wait, too.
        """
        deadline, listener = monotonic() + timeout_seconds, f"retry-{uuid4()}"
        feed = self._feeds.listen(listener, 10_000)  # before the entry can end
        try:
            record_id = self._watched = retry()
            return self._awaited(record_id, feed, deadline)
        finally:
            self._feeds.forget(listener)

    def _awaited(self, record_id: int, feed: Feed, deadline: float) -> RetryOutcome:
        while True:
            found = self._look(record_id)
            left = deadline - monotonic()
            if left <= 0 or self._is_told(found, left):
                return _outcome(record_id, found)
            ended = _ended(feed, record_id, min(POLL_SECONDS, left))
            if ended is not None:
                return RetryOutcome(
                    record_id=record_id,
                    state=ended.state,
                    error_count=ended.error_count,
                    last_error=ended.last_error,
                )

    def _is_told(self, found: Entry | None, left: float) -> bool:
        """Whether more time would tell nothing new."""
        if found is None or found.processing_state in _ENDS:
            return True
        waits = (found.effective_date - self._store.clock.now()).total_seconds()
        return found.processing_state is State.AVAILABLE and found.error_count > 0 and waits > left

    def _look(self, record_id: int) -> Entry | None:
        """The newest entry of the retry's chain: a reaper may have posted it anew."""
        live = self._first(lambda table: [table.c.record_id == self._watched])
        if live is not None:
            return live

        def of_chain(table: FromClause) -> list[ColumnElement[bool]]:
            return [or_(table.c.record_id == record_id, table.c.origin_id == record_id)]

        ended = self._first(of_chain, past=True)
        if ended is None or ended.processing_state is not State.REAPED:
            return ended
        # No index of the main table knows origins: it is read once for each redispatch.
        copy = self._first(lambda table: [table.c.origin_id == record_id])
        if copy is not None:
            self._watched = copy.record_id
        return copy or ended

    def _first(self, where: Where, *, past: bool = False) -> Entry | None:
        found = self._store.read(
            None,
            self._store.config.table,
            lambda connection: self._store.search(
                connection, past=past, where=where, limit=1, newest_first=True
            ),
        )
        return found[0] if found else None


def _ended(feed: Feed, record_id: int, seconds: float) -> Ended | None:
    """The end of an entry, if this process ends it within some seconds."""
    until = monotonic() + seconds
    while True:
        ended = feed.get(max(0.0, until - monotonic()))
        if ended is None or ended.entry.record_id == record_id:
            return ended


def _outcome(record_id: int, found: Entry | None) -> RetryOutcome:
    if found is None:
        return RetryOutcome(record_id=record_id, state=None)
    return RetryOutcome(
        record_id=record_id,
        state=found.processing_state,
        error_count=found.error_count,
        last_error=found.last_error,
    )
