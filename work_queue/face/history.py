"""The history of tasks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from queue_core.runtime.arguments import function
from queue_core.runtime.awaitable import awaited
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection
from queue_core.runtime.own_threads import in_own_thread
from work_queue import checks
from work_queue.face.part import Part
from work_queue.finished_task import FinishedTask
from work_queue.requests import HistoryDeletion, HistorySetting

DELETED = 1_000
"""Tasks that one transaction deletes."""
CLOCKS_DIFFER = timedelta(seconds=1)
"""How far a process's notion of the database's time may be off."""


class History(Part):
    """See `WorkQueue`."""

    def keep_history(
        self, queue: str, *, keep: bool = True, connection: CallersConnection | None = None
    ) -> None:
        """Keep the tasks of a queue in history when they are deleted, from now on.

        It is a setting in the database, for all who work on the queue. A delete copies the task in
        the same transaction.

        Args:
            queue: The queue. It needs no tasks yet.
            keep: Whether it keeps history. If not, its kept history stays. Default: True.
            connection: As for `modify`.

        Raises:
            InvalidRequestError: An argument is not allowed.
            InvalidConnectionError: The connection can't be used here.
            WriteLockError: SQLite refused the write lock to the caller's transaction.
            DatabaseUnreachableError: The database does not answer.
        """
        self._backend.set_history(HistorySetting(checks.queue(queue), bool(keep)), connection)

    def histories(self) -> dict[str, datetime | None]:
        """Read which queues keep history, or kept it once.

        Returns:
            Since when each of them keeps it, by name. None: it does so no more.

        Raises:
            DatabaseUnreachableError: The database does not answer.
        """
        return {one.queue: one.since for one in self._backend.histories()}

    def finished_tasks(
        self,
        queue: str | None = None,
        *,
        ids: Iterable[str] | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        limit: int | None = None,
        with_values: bool = True,
        connection: CallersConnection | None = None,
    ) -> list[FinishedTask]:
        """Read history: tasks that were deleted while their queue kept it.

        Args:
            queue: Of this queue. It or `ids` is needed.
            ids: Those with one of these ids, 500 at most.
            since: Those that ended at this aware date or later.
            before: Those that ended before this aware date.
            limit: How many at most; 0 or less: no limit. Default: no limit.
            with_values: Whether `FinishedTask.value` is read. Default: True.
            connection: The caller's connection, whose transaction reads. Default: one of our own.

        Returns:
            The tasks, the last that ended first.

        Raises:
            InvalidRequestError: An argument is not allowed; NaiveDateTimeError for a date without a
                time zone.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: The database does not answer.
        """
        query = checks.history_query(
            queue, ids, since=since, before=before, limit=limit, with_values=with_values
        )
        return self._backend.finished_tasks(query, connection)

    def truncate_history(
        self,
        *queues: str,
        before: datetime | None = None,
        limit: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Delete history, in batches of 1,000, each a transaction, while everything runs.

        Args:
            queues: Of these queues. Default: of all.
            before: Only tasks that ended before this aware date. Default, and for a date to come:
                all that had ended when the call began, or a second later.
            limit: How many at most, the oldest of each queue; 0 or less: no limit. Default: no
                limit.
            progress: Called after each batch with the tasks that were deleted so far.

        Returns:
            How many tasks were deleted from history.

        Raises:
            InvalidRequestError: An argument is not allowed; NaiveDateTimeError for a date without a
                time zone.
            ConfigurationError: `progress` can't be called. Nothing was deleted.
            DatabaseUnreachableError: The database does not answer. Batches may be deleted already.
        """
        if progress is not None:
            function(progress, key="progress", arguments=1)
        named = checks.queues(queues) if queues else None
        # Tasks that end from now on stay, else a busy queue would never let this end.
        begun = self._backend.time() + CLOCKS_DIFFER
        until = min(checks.date(before, key="before") or begun, begun)
        most, deleted = checks.bound(limit) or sys.maxsize, 0
        for queue in named or [one.queue for one in self._backend.histories()]:
            while batch := min(DELETED, most - deleted):
                gone = self._backend.delete_history(HistoryDeletion(queue, until, batch))
                if not gone:
                    break
                deleted += gone
                if progress is not None:
                    progress(deleted)
        return deleted

    # -- awaitable twins --------------------------------------------------------------------------

    async def keep_history_async(
        self, queue: str, *, keep: bool = True, connection: AsyncCallersConnection | None = None
    ) -> None:
        """Awaitable twin of `keep_history`."""
        await awaited(
            lambda inner: self.keep_history(queue, keep=keep, connection=inner), connection
        )

    async def histories_async(self) -> dict[str, datetime | None]:
        """Awaitable twin of `histories`."""
        return await in_own_thread(self.histories)

    async def finished_tasks_async(
        self,
        queue: str | None = None,
        *,
        ids: Iterable[str] | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        limit: int | None = None,
        with_values: bool = True,
        connection: AsyncCallersConnection | None = None,
    ) -> list[FinishedTask]:
        """Awaitable twin of `finished_tasks`."""
        return await awaited(
            lambda inner: self.finished_tasks(
                queue,
                ids=ids,
                since=since,
                before=before,
                limit=limit,
                with_values=with_values,
                connection=inner,
            ),
            connection,
        )

    async def truncate_history_async(
        self,
        *queues: str,
        before: datetime | None = None,
        limit: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Awaitable twin of `truncate_history`, in a thread, which calls `progress`."""
        return await asyncio.to_thread(
            self.truncate_history, *queues, before=before, limit=limit, progress=progress
        )
