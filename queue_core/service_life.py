"""The life of a bus or service, and the changes by hand that both take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Self, Unpack

from queue_core.claiming.backlog_watch import BacklogHook, no_more
from queue_core.cluster.health import ErrorHook, RecoveryHook
from queue_core.engine import QueueEngine
from queue_core.finishing.feeds import Feed
from queue_core.maintenance import (
    ForgetOptions,
    Maintenance,
    RetryAndWaitOptions,
    RetryOptions,
    TruncateOptions,
)
from queue_core.model.config import ChangeableSettings
from queue_core.model.entry import Entry, SearchKey, States
from queue_core.old_names import OldFaceNames
from queue_core.reading.depths import COUNT_LIMIT
from queue_core.reading.forgetting import Forgotten
from queue_core.reading.history import Progress
from queue_core.retrial import RetryOutcome
from queue_core.runtime.arguments import function, is_number, not_allowed, wait_seconds
from queue_core.runtime.awaitable import awaited
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection
from queue_core.storage.rows import UNSET, Unset


class Face(OldFaceNames):
    """Stands on one engine; a context manager that starts it and closes it."""

    def __init__(self, engine: QueueEngine) -> None:
        self._engine = engine
        self._maintenance = Maintenance(engine)

    def start(self) -> Self:
        """Register this process as a node, and deliver.

        Returns:
            Itself.

        Raises:
            NodeNameTakenError: A live node has the configured `node_name`.
            LifecycleError: It is started already, or another of this process serves the table.
            ConfigurationError: Its `node` settings differ from those of the process's node.
            ForkedError: It was made in the parent of this process.
            DatabaseUnreachableError: The database does not answer.
        """
        self._engine.lifecycle.start()
        return self

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Stop delivering. Running handlers finish; what has not started is given back.

        It may be started again.

        Args:
            timeout_seconds: Seconds to wait for running handlers, 0 or more. Default: the
                configuration's `shutdown_timeout_seconds`.

        Returns:
            False if handlers still ran then, or if outcomes could not be written.

        Raises:
            ConfigurationError: The time is not allowed.
        """
        if timeout_seconds is not None:
            timeout_seconds = wait_seconds(timeout_seconds, key="timeout_seconds")
        return self._engine.lifecycle.stop(timeout_seconds)

    def reconfigure(self, **settings: Unpack[ChangeableSettings]) -> None:
        """Change settings while it is stopped. The next start takes them.

        Subscriptions, queues and functions stay. For other keys, such as `mode` or `table`, close
        it and build a new one.

        Args:
            settings: Keys of the configuration with their new values.

        Raises:
            ConfigurationError: A value is not allowed, or the key can't be changed. Nothing was
                changed.
            LifecycleError: It is started. Nothing was changed.

        Example:
            >>> bus.stop()
            >>> bus.reconfigure(handler_threads=8, poll_interval_seconds=1.0)
            >>> bus.start()
        """
        self._engine.lifecycle.reconfigure(settings)

    def close(self) -> None:
        """Stop, and close the library's connections."""
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
        """Decorate a function that is called after an entry has ended FAILED, for any reason.

        Only the node that ended the entry calls its functions, on the handler pool. They are not
        called if its process dies first.

        Args:
            hook: Called with the entry and its last error.

        Returns:
            `hook`.

        Raises:
            ConfigurationError: `hook` can't be called with two arguments.
        """
        return self._engine.on_failed(hook)

    def listen(self, listener_id: str, *, capacity: int = 10_000) -> Feed:
        """Listen to the entries that this process ends, PROCESSED or FAILED.

        Each listener has its own feed, from its first call on; the same id gets the same feed. It
        has the entries that handlers of this process have run to their end, after the commit of
        the outcome. Other processes' entries, and those that end without a run, are not in it, and
        a process that dies loses its feeds: rely on history, not on a feed.

        Args:
            listener_id: Names the listener within this bus or service.
            capacity: Entries that the feed holds. When it is full, it drops its oldest. Default:
                10,000.

        Returns:
            The feed.

        Raises:
            ConfigurationError: An argument is not allowed, or the listener has another capacity.

        Example:
            >>> feed = bus.listen("dashboard")
            >>> ended = feed.get(timeout_seconds=1.0)
        """
        return self._engine.lifecycle.finisher.feeds.listen(listener_id, capacity)

    def stop_listening(self, listener_id: str) -> bool:
        """End a listener's feed. What waits in it can still be taken.

        Args:
            listener_id: As for `listen`.

        Returns:
            False if it had no feed.
        """
        return self._engine.lifecycle.finisher.feeds.forget(listener_id)

    def healthy(self) -> bool | None:
        """Whether this bus or service reaches the database. It asks the process only.

        Each beat of its node is a check.

        Returns:
            True if a beat succeeded within the last `NodeConfig.health_allowed_error_seconds` (15
            minutes by default), otherwise False; None before the first check, and after a stop.

        Example:
            ```python
            if bus.unhealthy():
                sys.exit("no beat has reached the database for 15 minutes")
            ```
        """
        return self._engine.lifecycle.health.healthy()

    def unhealthy(self) -> bool:
        """Whether a restart may help: `healthy` is False, and the start was long enough ago.

        Returns:
            False during `NodeConfig.health_grace_seconds` after each start (10 minutes by default),
            and while `healthy` is True or None.
        """
        return self._engine.lifecycle.health.unhealthy()

    def on_health_error(self, hook: ErrorHook) -> ErrorHook:
        """Decorate a function that is called when beats fail for longer than the lease.

        It is called again while they fail, once in each `NodeConfig.health_callback_pause_seconds`
        (an hour by default). It runs on the handler pool; an exception of it is logged. The log has
        an ERROR `health_failed` each time in any case.

        Args:
            hook: Called with the error of the last beat.

        Returns:
            `hook`.

        Raises:
            ConfigurationError: `hook` can't be called.
        """
        function(hook, key="hook")
        self._engine.lifecycle.health.error_hooks.append(hook)
        return hook

    def on_recovery(self, hook: RecoveryHook) -> RecoveryHook:
        """Decorate a function that is called when a beat succeeds after `on_health_error`.

        It runs on the handler pool; an exception of it is logged. The log has an INFO
        `health_recovered` in any case.

        Args:
            hook: Called without arguments.

        Returns:
            `hook`.

        Raises:
            ConfigurationError: `hook` can't be called.
        """
        function(hook, key="hook")
        self._engine.lifecycle.health.recovery_hooks.append(hook)
        return hook

    def on_backlog(
        self,
        hook: BacklogHook = no_more,
        *,
        above: int = 1_000,
        pause_seconds: float = 21_600.0,
    ) -> BacklogHook:
        """Call a function when more entries of a queue are due than `above`.

        What waits is counted every 10 seconds while this is started, as for the metrics, and by
        each node. The function runs on the handler pool; an exception of it is logged. The log has
        a WARNING `backlog` each time in any case.

        Args:
            hook: Called with what waits for the queue, a `QueueDepth`; may be decorated. Default:
                the log is enough.
            above: The number of entries, 0 or more; what waits is counted up to 10,000 of the
                table. Default: 1,000.
            pause_seconds: The least time between two calls for one queue. Default: 21,600, which
                is 6 hours.

        Returns:
            `hook`.

        Raises:
            ConfigurationError: An argument is not allowed.

        Example:
            >>> bus.on_backlog(above=5_000)
        """
        function(hook, key="hook")
        if not (is_number(above) and 0 <= above < COUNT_LIMIT):
            raise not_allowed("above", above, f"from 0 to {COUNT_LIMIT - 1:,}")
        if not (is_number(pause_seconds) and pause_seconds >= 0):
            raise not_allowed("pause_seconds", pause_seconds, "seconds, 0 or more")
        self._engine.lifecycle.backlog.add(hook, above, pause_seconds)
        return hook

    def truncate_history(
        self,
        *,
        before: datetime | None = None,
        states: States | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Delete history of all queues of the table, while everything runs.

        Without `before` and `states` the whole table is emptied at once. Its exclusive lock is
        waited for at most 50 ms a try; outcomes written meanwhile wait for it. With them, and on
        SQLite and MySQL, rows go in batches of 2,000, each a transaction. Live entries are never
        touched.

        Args:
            before: Only entries that ended before this aware date. Default: all that had ended when
                the call began.
            states: Only entries that ended so: PROCESSED, FAILED, REAPED, REMOVED. Default: all.
            progress: Called after each batch with (rows deleted so far, rows to be deleted).

        Returns:
            The number of deleted rows.

        Raises:
            InvalidPostError: A state is not allowed; NaiveDateTimeError for a date without a time
                zone. Nothing was deleted.
            ConfigurationError: `progress` can't be called. Nothing was deleted.
            LifecycleError: Another call truncates, archives or forgets this history. Nothing was
                deleted.
            DatabaseUnreachableError: The database does not answer. Batches may be deleted already.
        """
        return self._maintenance.truncate(before=before, states=states, progress=progress)

    def forget(
        self,
        *,
        search_key1: SearchKey | Unset = UNSET,
        search_key2: SearchKey | Unset = UNSET,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Forgotten:
        """Delete all that has the keys of one customer, of all queues of the table.

        Everything may run meanwhile. Waiting entries and rows of history are deleted in batches of
        2,000, each a transaction. Entries that some node runs are listed and left: call again when
        they have ended. Entries posted later than a second after the call began stay. Archives are
        not touched.

        Args:
            search_key1: Only what has this key. If it is given alone, the whole table is read.
            search_key2: As `search_key1`. At least one is given; if both are, rows have both.
            dry_run: Delete nothing, and count what would be deleted. Default: False.
            progress: Called after each batch with (rows deleted so far, rows to be deleted).

        Returns:
            What was deleted, and what is left.

        Raises:
            InvalidPostError: No key is given, or one that can't be a key. Nothing was deleted.
            ConfigurationError: `progress` can't be called. Nothing was deleted.
            LifecycleError: Another call truncates, archives or forgets this history. Nothing was
                deleted.
            DatabaseUnreachableError: The database does not answer. Batches may be deleted already.

        Example:
            ```python
            left = bus.forget(search_key2=customer.id).running
            ```
        """
        return self._maintenance.forget(
            search_key1=search_key1, search_key2=search_key2, dry_run=dry_run, progress=progress
        )

    def retry(
        self,
        record_id: int,
        *,
        all_subscribers: bool = False,
        force: bool = False,
        connection: CallersConnection | None = None,
    ) -> int:
        """Post an entry again that ended FAILED or REMOVED; it is due now, for any node.

        Args:
            record_id: The id of the entry in history.
            all_subscribers: Run subscribers, too, that had succeeded. Default: False.
            force: Retry an entry, too, that was retried before, or whose key another entry has: it
                runs without it. Default: False, which allows the former only if the retry ended
                FAILED or REMOVED.
            connection: As for `PersistentBus.post`: the retry is part of its transaction.

        Returns:
            The id of the new entry, whose `replay_of` is `record_id`.

        Raises:
            EntryNotFoundError: History has no such entry.
            EntryNotChangeableError: The entry ended otherwise, or was retried before. Nothing was
                written. If another call retried it at this moment, roll your transaction back.
            DuplicateKeyError: Another entry has the key of this one. Nothing was written.
            InvalidPostError: The id can't be one.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.
        """
        return self._maintenance.retry(
            record_id, all_subscribers=all_subscribers, force=force, connection=connection
        )

    def retry_and_wait(
        self,
        record_id: int,
        *,
        timeout_seconds: float = 30.0,
        all_subscribers: bool = False,
        force: bool = False,
    ) -> RetryOutcome:
        """Retry an entry, as `retry` does, and wait until it has ended, to see how.

        Any node runs it, in its own time; this process may be none. The wait also ends when a run
        has failed and the next one is due later than the time that is left. A retry that has not
        ended goes on after the call.

        Args:
            record_id: The id of the entry in history.
            timeout_seconds: The longest wait. Default: 30.
            all_subscribers: As for `retry`.
            force: As for `retry`.

        Returns:
            How it ended, with its error; or where it stands, if it has not ended in time.

        Raises:
            EntryNotFoundError: As for `retry`.
            EntryNotChangeableError: As for `retry`.
            InvalidPostError: As for `retry`.
            ConfigurationError: The time is not allowed. Nothing was written.
            DatabaseUnreachableError: As for `retry`; or the retry is posted, and the wait failed.

        Example:
            ```python
            outcome = bus.retry_and_wait(4711, timeout_seconds=10)
            print(outcome.state, outcome.last_error)
            ```
        """
        seconds = wait_seconds(timeout_seconds, key="timeout_seconds")
        return self._maintenance.retry_and_wait(
            record_id, timeout_seconds=seconds, all_subscribers=all_subscribers, force=force
        )

    def release(self, record_id: int, *, connection: CallersConnection | None = None) -> bool:
        """Let an entry run that was posted with `after`, whatever it still waits for.

        Args:
            record_id: The id of the entry.
            connection: As for `PersistentBus.post`: the change is part of its transaction.

        Returns:
            False if it waits for no other entry.

        Raises:
            EntryNotFoundError: There is no such entry, neither live nor in history.
            EntryNotChangeableError: The entry runs, or has ended. Nothing was written.
            InvalidPostError: The id can't be one.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.

        Example:
            >>> for entry in bus.find(states="WAITING"):
            ...     bus.release(entry.record_id)
        """
        return self._maintenance.release(record_id, connection=connection)

    def discard(self, record_id: int, *, connection: CallersConnection | None = None) -> bool:
        """Count an entry that ended FAILED among the dead letters no more.

        The entry stays in history as it is. A later `retry` is still possible.

        Args:
            record_id: The id of the entry in history.
            connection: As for `PersistentBus.post`: the change is part of its transaction.

        Returns:
            False if it was discarded before.

        Raises:
            EntryNotFoundError: History has no such entry.
            EntryNotChangeableError: The entry ended otherwise, or was retried: then its last retry
                is the dead letter, if that failed. Nothing was written.
            InvalidPostError: The id can't be one.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.
        """
        return self._maintenance.discard(record_id, connection=connection)

    # -- awaitable twins --------------------------------------------------------------------------

    async def start_async(self) -> Self:
        """Awaitable twin of `start`, in a thread."""
        return await asyncio.to_thread(self.start)

    async def stop_async(self, timeout_seconds: float | None = None) -> bool:
        """Awaitable twin of `stop`, in a thread."""
        return await asyncio.to_thread(self.stop, timeout_seconds)

    async def close_async(self) -> None:
        """Awaitable twin of `close`, in a thread."""
        await asyncio.to_thread(self.close)

    async def truncate_history_async(self, **options: Unpack[TruncateOptions]) -> int:
        """Awaitable twin of `truncate_history`, in a thread, which calls `progress`."""
        return await asyncio.to_thread(lambda: self.truncate_history(**options))

    async def forget_async(self, **options: Unpack[ForgetOptions]) -> Forgotten:
        """Awaitable twin of `forget`, in a thread, which calls `progress`."""
        return await asyncio.to_thread(lambda: self.forget(**options))

    async def retry_async(
        self,
        record_id: int,
        *,
        connection: AsyncCallersConnection | None = None,
        **options: Unpack[RetryOptions],
    ) -> int:
        """Awaitable twin of `retry`."""
        return await awaited(
            lambda inner: self.retry(record_id, connection=inner, **options), connection
        )

    async def retry_and_wait_async(
        self, record_id: int, **options: Unpack[RetryAndWaitOptions]
    ) -> RetryOutcome:
        """Awaitable twin of `retry_and_wait`, in a thread."""
        return await asyncio.to_thread(lambda: self.retry_and_wait(record_id, **options))

    async def release_async(
        self, record_id: int, *, connection: AsyncCallersConnection | None = None
    ) -> bool:
        """Awaitable twin of `release`."""
        return await awaited(lambda inner: self.release(record_id, connection=inner), connection)

    async def discard_async(
        self, record_id: int, *, connection: AsyncCallersConnection | None = None
    ) -> bool:
        """Awaitable twin of `discard`."""
        return await awaited(lambda inner: self.discard(record_id, connection=inner), connection)
