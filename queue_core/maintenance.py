"""Changes by hand to entries that have ended, and to all that has one customer's keys."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict, Unpack

from queue_core.awaited_retry import AwaitedRetry, RetryOutcome
from queue_core.engine import QueueEngine
from queue_core.model.posting import SearchKey
from queue_core.model.states import States
from queue_core.reading.forgetting import Forgetting, Forgotten
from queue_core.reading.history import History
from queue_core.reading.live_entries import Entries
from queue_core.reading.truncation import Progress, Truncation
from queue_core.runtime.callers import CallersConnection
from queue_core.storage.filter import EVERY, Filter
from queue_core.storage.search_keys import Unset


class RetryOptions(TypedDict, total=False):
    """The options of a retry, besides its connection."""

    all_subscribers: bool
    force: bool


class RetryAndWaitOptions(RetryOptions, total=False):
    """The options of a retry whose end is waited for."""

    timeout_seconds: float


class TruncateOptions(TypedDict, total=False):
    """The options of a truncation."""

    before: datetime | None
    states: States | None
    progress: Progress | None


class ForgetOptions(TypedDict, total=False):
    """The options of forgetting."""

    search_key1: SearchKey | Unset
    search_key2: SearchKey | Unset
    dry_run: bool
    progress: Progress | None


class Maintenance:
    """The changes of a person to one queue (`queue_name`), or to all queues of the table (None).

    Buses, services, queues and the command line stand on it.
    """

    def __init__(self, engine: QueueEngine, queue_name: str | None = None) -> None:
        self._engine = engine
        self._history = History(engine.store, queue_name)
        self._truncation = Truncation(engine.store)
        self._entries = Entries(engine.store, queue_name)
        self._forgetting = Forgetting(engine.store, queue_name)

    def retry(
        self,
        record_id: int,
        *,
        connection: CallersConnection | None = None,
        **options: Unpack[RetryOptions],
    ) -> int:
        """As `History.retry`; nodes learn of the new entry at once."""
        new_id = self._history.retry(record_id, connection=connection, **options)
        self._engine.poster.freed(connection)
        return new_id

    def retry_and_wait(
        self, record_id: int, *, timeout_seconds: float, **options: Unpack[RetryOptions]
    ) -> RetryOutcome:
        """See `Face.retry_and_wait`."""
        awaited = AwaitedRetry(self._engine.store, self._engine.lifecycle.finisher.feeds)
        return awaited.run(lambda: self.retry(record_id, **options), timeout_seconds)

    def discard(self, record_id: int, *, connection: CallersConnection | None = None) -> bool:
        """As `History.discard`; nodes learn at once of those that may start now."""
        discarded = self._history.discard(record_id, connection=connection)
        if discarded:
            self._engine.poster.freed(connection)
        return discarded

    def release(self, record_id: int, *, connection: CallersConnection | None = None) -> bool:
        """As `Entries.release`; nodes learn of it at once."""
        released = self._entries.release(record_id, connection=connection)
        if released:
            self._engine.poster.freed(connection)
        return released

    def remove(self, record_id: int | None, wanted: Filter = EVERY) -> int:
        """As `Entries.remove`; nodes learn at once of those that may start now."""
        removed = self._entries.remove(record_id, wanted)
        if removed:
            self._engine.poster.freed()
        return removed

    def truncate(self, **options: Unpack[TruncateOptions]) -> int:
        """See `Truncation.run`."""
        return self._truncation.run(**options)

    def forget(self, **options: Unpack[ForgetOptions]) -> Forgotten:
        """See `Forgetting.forget`."""
        return self._forgetting.forget(**options)
