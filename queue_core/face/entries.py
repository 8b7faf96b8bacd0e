"""The entries of a bus or service, as they are changed by hand."""

from __future__ import annotations

import asyncio
from typing import Unpack

from queue_core.awaited_retry import RetryOutcome
from queue_core.face.part import FacePart
from queue_core.maintenance import RetryAndWaitOptions, RetryOptions
from queue_core.runtime.arguments import wait_seconds
from queue_core.runtime.awaitable import awaited
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection


class FaceEntries(FacePart):
    """Changes single entries."""

    def retry(
        self,
        record_id: int,
        *,
        all_subscribers: bool = False,
        force: bool = False,
        connection: CallersConnection | None = None,
    ) -> int:
        """Post an entry again that ended FAILED or REMOVED; it is due now, for any node.

        It waits for no others, also if the entry was posted `after` some.

        Args:
            record_id: The id of the entry in history.
            all_subscribers: Run subscribers, too, that had succeeded. Default: False.
            force: Retry an entry, too, that was retried before, or whose key another entry has: it
                runs without it. Default: False, which allows the former only if the retry ended
                FAILED or REMOVED. That retry is the one that is retried then.
            connection: As for `PersistentBus.post`: the retry is part of its transaction.

        Returns:
            The id of the new entry. Its `replay_of` is `record_id`, or the last retry of that.

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
            timeout_seconds: The longest wait, 0 or more. Default: 30.
            all_subscribers: As for `retry`.
            force: As for `retry`.

        Returns:
            The end, with its error; or the present state, if it has not ended in time.

        Raises:
            EntryNotFoundError: As for `retry`.
            EntryNotChangeableError: As for `retry`.
            DuplicateKeyError: As for `retry`.
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
        """Let an entry run that was posted with `after`, without regard to its other waits.

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

        The entry stays in history as it is. A later `retry` is still possible. An order key that
        it holds goes on, also if the entry was deleted from history.

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
