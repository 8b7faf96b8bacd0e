"""Limits of queues."""

from __future__ import annotations

from datetime import timedelta
from typing import TypedDict, Unpack

from queue_core.model.rate import ONE_SECOND
from queue_core.runtime.own_threads import in_own_thread
from work_queue import checks
from work_queue.face.part import Part
from work_queue.limit import QueueLimit


class LimitOptions(TypedDict, total=False):
    """The options of a limit."""

    concurrency: int | None
    rate: int | None
    per: timedelta | float
    burst: int
    by: str | None


class Limiting(Part):
    """See `WorkQueue`."""

    def limit(
        self,
        queue: str,
        *,
        concurrency: int | None = None,
        rate: int | None = None,
        per: timedelta | float = ONE_SECOND,
        burst: int = 1,
        by: str | None = None,
    ) -> QueueLimit:
        """Let all claimants together claim no more of a queue than this, until `unlimit`.

        `concurrency`, `rate`, or both are given. The limit is stored, for all who work on the
        queue, and replaces the one before. Inserting goes on; tasks that find no place wait. It
        holds for all claims that begin after this call, which is a transaction of its own.

        Args:
            queue: The queue. It needs no tasks yet.
            concurrency: How many of its tasks are claimed at once. A task gives its place back when
                it is deleted, released, moved, or put off as not claimed, and when its lease ends.
                Default: any number.
            rate: How many are claimed in each `per`. Default: any number.
            per: The time that `rate` is about, as seconds or a timedelta, from a millisecond to 366
                days. Default: a second.
            burst: How many of `rate` may be claimed at once, after a time in which none was. They
                come evenly spaced otherwise. Default: 1.
            by: Who limits it, in at most 255 characters. Default: the user of this process and its
                machine.

        Returns:
            The limit as it is stored.

        Raises:
            InvalidRequestError: An argument is not allowed, or neither limit is given. Nothing was
                written.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.

        Example:
            >>> work.limit("mail", concurrency=10)
            >>> work.limit("sms", rate=100, per=timedelta(minutes=1), burst=10)
        """
        return self._backend.set_limit(
            checks.limit_setting(queue, concurrency, rate, per=per, burst=burst, by=by)
        )

    def unlimit(self, queue: str) -> bool:
        """End the limit of a queue: what has waited can be claimed.

        Args:
            queue: The queue.

        Returns:
            False if it was not limited.

        Raises:
            InvalidRequestError: The name is not allowed.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.
        """
        return self._backend.remove_limit(checks.queue(queue))

    def limits(self, *queues: str) -> list[QueueLimit]:
        """Read limits.

        Args:
            queues: Those of these queues. Default: of all.

        Returns:
            The limits, by queue.

        Raises:
            InvalidRequestError: A name is not allowed.
            DatabaseUnreachableError: The database does not answer.
        """
        return self._backend.limits(checks.queues(queues) if queues else ())

    # -- awaitable twins --------------------------------------------------------------------------

    async def limit_async(self, queue: str, **options: Unpack[LimitOptions]) -> QueueLimit:
        """Awaitable twin of `limit`."""
        return await in_own_thread(self.limit, queue, **options)

    async def unlimit_async(self, queue: str) -> bool:
        """Awaitable twin of `unlimit`."""
        return await in_own_thread(self.unlimit, queue)

    async def limits_async(self, *queues: str) -> list[QueueLimit]:
        """Awaitable twin of `limits`."""
        return await in_own_thread(self.limits, *queues)
