"""A job: the argument of a handler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

from sqlalchemy import Connection

from queue_core.errors import ConfigurationError
from work_queue.document import DocSet
from work_queue.task import Task

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection


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
        given_up: threading.Event,
        hold: Callable[[Iterable[Task]], None],
        connection: Connection | AsyncConnection | None = None,
    ) -> None:
        self.task = task
        self.sets = sets
        self._given_up = given_up
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

    def hold(self, tasks: Iterable[Task]) -> None:
        """Renew more tasks with this one, and release them when the handler has ended.

        The actions that the handler returns may name them as they are here, too; these go before
        the release. The claim of a task that is released is not counted. If one is lost, the job
        is.

        Args:
            tasks: Tasks that were just claimed for `task.lease`, by `task.claimant`.
        """
        self._hold(tasks)

    def wait(self, seconds: float) -> bool:
        """Sleep in a handler that is no coroutine, until the time is over or the job is given up.

        Args:
            seconds: How long at most.

        Returns:
            Whether it was given up.
        """
        return self._given_up.wait(seconds)
