"""A job: the argument of a handler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import Connection

from queue_core.errors import ConfigurationError
from work_queue.document import DocSet
from work_queue.task import Task

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from work_queue.work_queue import WorkQueue


class Job:
    """A claimed task, and what was claimed with it, for one call of a handler.

    Attributes:
        task: The task as it was claimed. The actions that the handler returns may name this
            version.
        sets: The doc sets that were claimed for it, in the order of the worker's `docs`.
    """

    def __init__(
        self,
        task: Task,
        sets: tuple[DocSet, ...],
        connection: Connection | AsyncConnection | None = None,
        *,
        given_up: threading.Event,
        work: WorkQueue,
        hold: Callable[[Iterable[Task]], None],
    ) -> None:
        self.task = task
        self.sets = sets
        self._given_up = given_up
        self._work = work
        self._hold = hold
        self._connection = connection

    @property
    def connection(self) -> Connection:
        """The connection whose transaction ends with the handler, in a worker with an `engine`.

        In a coroutine function it is the `async_connection`, which has its own type there.

        Raises:
            ConfigurationError: The worker has no `engine`.
        """
        return cast("Connection", self._there())

    @property
    def async_connection(self) -> AsyncConnection:
        """The same for a coroutine function, whose worker has an AsyncEngine.

        Raises:
            ConfigurationError: The worker has no `engine`.
        """
        return cast("AsyncConnection", self._there())

    def _there(self) -> Connection | AsyncConnection:
        if self._connection is None:
            raise ConfigurationError(
                "the worker has no engine, so a job has no connection. Give it engine=.",
                key="engine",
            )
        return self._connection

    @property
    def given_up(self) -> bool:
        """Whether what the handler returns is no longer written, so that it had better end.

        Its lease was lost, its time is over, or its worker was stopped. A coroutine is cancelled
        then.
        """
        return self._given_up.is_set()

    def claim_more(self, *queues: str, limit: int, timeout_seconds: float = 0.0) -> list[Task]:
        """Claim more tasks, which are renewed with the job's, and released when the handler ends.

        The actions that the handler returns may name them as they are here; these go before the
        release. The claim of a task that is released is not counted. If one of them is lost, the
        job is.

        Args:
            queues: From which of them. Default: the queue of the job's task.
            limit: How many at most, 1 or more.
            timeout_seconds: The longest wait for the first one. Default: 0, which is none.

        Returns:
            Tasks of one queue, in the order of their arrival, or an empty list.

        Raises:
            InvalidRequestError: An argument is not allowed.
            LifecycleError: The work queue was closed.
            DatabaseUnreachableError: The database does not answer.
        """
        options = self._options(limit, timeout_seconds)
        return self._held(self._work.claim_many(*(queues or [self.task.queue]), **options))

    async def claim_more_async(
        self, *queues: str, limit: int, timeout_seconds: float = 0.0
    ) -> list[Task]:
        """Awaitable twin of `claim_more`, for coroutine functions."""
        options = self._options(limit, timeout_seconds)
        claimed = await self._work.claim_many_async(*(queues or [self.task.queue]), **options)
        return self._held(claimed)

    def _options(self, limit: int, timeout_seconds: float) -> dict[str, Any]:
        return {
            "limit": limit,
            "timeout_seconds": timeout_seconds,
            "claimant": self.task.claimant,
            "lease_seconds": self.task.lease.total_seconds(),
        }

    def _held(self, claimed: list[Task]) -> list[Task]:
        # If the lease has ended meanwhile, the job's task is there again, at a newer version.
        others = [task for task in claimed if task.id != self.task.id]
        self._hold(others)
        return others

    def wait(self, seconds: float) -> bool:
        """Sleep in a handler that is no coroutine, until the time is over or the job is given up.

        Args:
            seconds: How long at most.

        Returns:
            Whether it was given up.
        """
        return self._given_up.wait(seconds)
