"""Failed tasks: listed, and sent back to the queues where they failed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypedDict, Unpack

from queue_core.reading.bulk import BATCH, PREVIEW, Stop, check_calls, is_set
from queue_core.reading.truncation import Progress
from queue_core.runtime.awaitable import awaited
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection
from work_queue import checks
from work_queue.face.modifying import Modifying
from work_queue.face.possible import modify_possible
from work_queue.refs import TaskPlace
from work_queue.replayed import Replayed
from work_queue.requests import TaskQuery
from work_queue.task import Task


class ReplayOptions(TypedDict, total=False):
    """The options of `replay_failed`."""

    to: str | None
    failed_in: str | None
    error_text: str | None
    dry_run: bool
    progress: Progress | None
    stop: Stop | None
    claimant: str | None


class Replaying(Modifying):
    """See `WorkQueue`."""

    def failed_tasks(
        self,
        queue: str,
        *,
        failed_in: str | None = None,
        error_text: str | None = None,
        limit: int | None = None,
        with_values: bool = True,
        after: TaskPlace | None = None,
        connection: CallersConnection | None = None,
    ) -> list[Task]:
        """Read the tasks of an error queue: those that a failure has moved into it.

        It reads the queue up to the last task that it answers with.

        Args:
            queue: The error queue, such as "mail/err".
            failed_in: Only those that failed in this queue.
            error_text: Only those whose `err` has this text, in lower or upper case.
            limit: How many at most; 0 or less: no limit. Default: no limit.
            with_values: Whether `Task.value` is read. Default: True.
            after: Only those after this place, such as `place` of the last task that was read.
            connection: The caller's connection, whose transaction reads. Default: one of our own.

        Returns:
            The tasks in the order of their arrival, each with the queue that it `failed_in`.

        Raises:
            InvalidRequestError: An argument is not allowed.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: The database does not answer.
        """
        query = replace(
            _of_failed(queue, failed_in, error_text),
            limit=checks.bound(limit),
            with_values=bool(with_values),
            after=after,
        )
        return self._backend.tasks(checks.task_query(query), connection)

    def replay_failed(
        self,
        queue: str,
        *,
        to: str | None = None,
        failed_in: str | None = None,
        error_text: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        stop: Stop | None = None,
        claimant: str | None = None,
    ) -> Replayed:
        """Send the failed tasks of an error queue back to where they failed, to run anew.

        They are counted first, and then go in batches of 100, each a transaction. A task has no
        attempts, claims and `err` then, and can be claimed at once. Tasks that fail again meanwhile
        wait for the next call. Tasks that others hold stay.

        Args:
            queue: The error queue, such as "mail/err".
            to: Send all of them to this queue instead.
            failed_in: As for `failed_tasks`.
            error_text: As for `failed_tasks`.
            dry_run: Change nothing; count the matches, and show the first. Default: False.
            progress: Called after each batch with (tasks done so far, tasks that match).
            stop: An event, or a function without arguments: once it is set, or answers True, the
                call ends after the batch under way. Default: never.
            claimant: Who sends them back. Default: the work queue's.

        Returns:
            How far it came.

        Raises:
            InvalidRequestError: An argument is not allowed. Nothing was written.
            ConfigurationError: `progress` or `stop` can't be called. Nothing was written.
            DatabaseUnreachableError: The database does not answer. Batches may be done already.

        Example:
            ```python
            done = work.replay_failed("mail/err", error_text="timeout")
            print(done.replayed, "of", done.matched)
            ```
        """
        check_calls(progress, stop)
        target = None if to is None else checks.queue(to, key="to")
        query = _of_failed(queue, failed_in, error_text)
        first, matched = list[Task](), 0
        last = changed = datetime.min.replace(tzinfo=UTC)
        for batch in self._batches(query):
            first += batch[: PREVIEW - len(first)]
            matched += len(batch)
            last, changed = batch[-1].at, max(changed, *(task.modified for task in batch))
        if dry_run:
            return Replayed(matched, first=tuple(first), stopped=is_set(stop))
        replayed = done = 0
        for batch in self._batches(query):
            if is_set(stop):
                return Replayed(matched, replayed, done - replayed, stopped=True)
            # Those that have failed again meanwhile were changed later.
            found = [task for task in batch if task.modified <= changed]
            replayed += modify_possible(self, [task.replay(target) for task in found], claimant)
            done += len(found)
            matched = max(matched, done)  # one may have been committed after the count
            if progress is not None:
                progress(done, matched)
            if batch[-1].at > last:
                break
        return Replayed(matched, replayed, matched - replayed)

    def _batches(self, query: TaskQuery) -> Iterator[list[Task]]:
        """The tasks of a query by arrival, read as they are asked for."""
        while batch := self._backend.tasks(replace(query, limit=BATCH), None):
            yield batch
            query = replace(query, after=batch[-1].place)

    # -- awaitable twins --------------------------------------------------------------------------

    async def failed_tasks_async(
        self,
        queue: str,
        *,
        failed_in: str | None = None,
        error_text: str | None = None,
        limit: int | None = None,
        with_values: bool = True,
        after: TaskPlace | None = None,
        connection: AsyncCallersConnection | None = None,
    ) -> list[Task]:
        """Awaitable twin of `failed_tasks`."""
        return await awaited(
            lambda inner: self.failed_tasks(
                queue,
                failed_in=failed_in,
                error_text=error_text,
                limit=limit,
                with_values=with_values,
                after=after,
                connection=inner,
            ),
            connection,
        )

    async def replay_failed_async(self, queue: str, **options: Unpack[ReplayOptions]) -> Replayed:
        """Awaitable twin of `replay_failed`, in a thread, which calls `progress` and `stop`."""
        return await asyncio.to_thread(lambda: self.replay_failed(queue, **options))


def _of_failed(queue: str, failed_in: str | None, error_text: str | None) -> TaskQuery:
    """The failed tasks of an error queue, without values."""
    return TaskQuery(
        checks.queue(queue),
        with_values=False,
        failed=True,
        failed_in=None if failed_in is None else checks.queue(failed_in),
        error_text=checks.error_text(error_text),
    )
