"""What the bus and the notification service have in common: their life, and what is done to history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Self, TypedDict, Unpack

from queue_core.engine import QueueEngine
from queue_core.model.entry import Entry, SearchKey, States
from queue_core.model.event_types import EventTypes
from queue_core.reading.forgetting import Forgetting, Forgotten
from queue_core.reading.history import History, Progress
from queue_core.runtime.arguments import wait_seconds
from queue_core.runtime.deprecation import deprecated
from queue_core.storage.rows import UNSET, Unset


class TruncateOptions(TypedDict, total=False):
    """What a truncation takes, and whom it tells."""

    before: datetime | None
    states: States | None
    progress: Progress | None


class ForgetOptions(TypedDict, total=False):
    """Whose data is forgotten, and whom it tells."""

    search_key1: SearchKey | Unset
    search_key2: SearchKey | Unset
    dry_run: bool
    progress: Progress | None


class Face:
    """Stands on one engine; a context manager that starts it and closes it."""

    _engine: QueueEngine
    _history: History

    @property
    def engine(self) -> QueueEngine:
        """Deprecated: it is the library's own."""
        deprecated("engine", "the calls of the bus or service")
        return self._engine

    @property
    def types(self) -> EventTypes:
        """Deprecated: `register_event` names an event type."""
        deprecated("types", "register_event")
        return self._engine.types

    def start(self) -> Self:
        """Become a node and deliver. Raises NodeNameTakenError, LifecycleError, ForkedError."""
        self._engine.lifecycle.start()
        return self

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Stop delivering: running handlers finish, what has not started is given back; may be started again.

        False if handlers still ran after `timeout_seconds` (default: `shutdown_timeout_seconds`).
        """
        if timeout_seconds is not None:
            timeout_seconds = wait_seconds(timeout_seconds, key="timeout_seconds")
        return self._engine.lifecycle.stop(timeout_seconds)

    def close(self) -> None:
        """Stop, and close our own connections."""
        self.stop()
        self._engine.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def on_failed(self, hook: Callable[[Entry, str], None]) -> Callable[[Entry, str], None]:
        """Decorate a function that is called with (entry, last error) after an entry has ended FAILED, for any reason.

        Of all nodes only the one that ended it calls its functions, on the handler pool; not if its
        process dies first.
        """
        return self._engine.on_failed(hook)

    def truncate_history(
        self,
        *,
        before: datetime | None = None,
        states: States | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Delete the table's history while everything runs, and return the number of rows; see `History.truncate`."""
        return self._history.truncate(before=before, states=states, progress=progress)

    def forget(
        self,
        *,
        search_key1: SearchKey | Unset = UNSET,
        search_key2: SearchKey | Unset = UNSET,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Forgotten:
        """Delete all that has the keys of one customer, of all queues of the table, while everything runs.

        Live entries that nobody runs are deleted, and the rows of history, in batches of 2,000,
        each a transaction. Entries that some node runs are told, not touched: call again when they
        have ended. What is posted later than a second after the call began stays. Archives are not
        touched.

        Args:
            search_key1: Only what has this key; a whole table is read if it is given alone.
            search_key2: Likewise. At least one of both is given; if both are, rows have both.
            dry_run: Delete nothing, and tell what would be deleted.
            progress: Called after each batch with (rows deleted so far, rows to be deleted).

        Returns:
            What was deleted, and what is left.

        Raises:
            InvalidPostError: No key, or one that is no integer. Nothing was deleted.
            LifecycleError: History is truncated, archived or forgotten by another. Nothing was deleted.

        Example:
            ```python
            left = bus.forget(search_key2=customer.id).running
            ```
        """
        return Forgetting(self._engine.store, None).forget(
            search_key1=search_key1, search_key2=search_key2, dry_run=dry_run, progress=progress
        )

    def retry(self, record_id: int, *, all_subscribers: bool = False, force: bool = False) -> int:
        """Post an entry that ended FAILED or REMOVED again, for now, and return the new id.

        Only subscribers that had not succeeded run, unless `all_subscribers`. Raises
        EntryNotFoundError; EntryNotChangeableError if it ended otherwise, or was tried again before
        and that did not end FAILED or REMOVED, unless `force`.
        """
        new_id = self._history.retry(record_id, all_subscribers=all_subscribers, force=force)
        self._engine.poster.rescheduled(self._engine.store.now())
        return new_id

    # -- awaitable twins: each runs in a thread, so that the event loop goes on ---------------------------------

    async def start_async(self) -> Self:
        """Awaitable twin of `start`."""
        return await asyncio.to_thread(self.start)

    async def stop_async(self, timeout_seconds: float | None = None) -> bool:
        """Awaitable twin of `stop`."""
        return await asyncio.to_thread(self.stop, timeout_seconds)

    async def close_async(self) -> None:
        """Awaitable twin of `close`."""
        await asyncio.to_thread(self.close)

    async def truncate_history_async(self, **options: Unpack[TruncateOptions]) -> int:
        """Awaitable twin of `truncate_history`; `progress` is called in the thread."""
        return await asyncio.to_thread(lambda: self.truncate_history(**options))

    async def forget_async(self, **options: Unpack[ForgetOptions]) -> Forgotten:
        """Awaitable twin of `forget`; `progress` is called in the thread."""
        return await asyncio.to_thread(lambda: self.forget(**options))

    async def retry_async(
        self, record_id: int, *, all_subscribers: bool = False, force: bool = False
    ) -> int:
        """Awaitable twin of `retry`."""
        return await asyncio.to_thread(
            lambda: self.retry(record_id, all_subscribers=all_subscribers, force=force)
        )
