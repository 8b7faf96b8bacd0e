"""Looks for tasks that run in threads for coroutines, which may go before a look has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from work_queue.task import Task


class Look:
    """One look.

    Its coroutine sees the tasks that it takes, or the one who finds that this has gone.
    """

    def __init__(self, take: Callable[[], list[Task]]) -> None:
        self._take = take
        self._lock = threading.Lock()
        self._taken = list[Task]()
        self._abandoned = False

    def run(self) -> tuple[list[Task], list[Task]]:
        """Take tasks; returns those for the coroutine, and those that it does not see any more."""
        taken = self._take() if self._is_awaited() else []
        with self._lock:
            self._taken = taken
            return (taken, []) if self._is_awaited() else ([], taken)

    def _is_awaited(self) -> bool:
        return not self._abandoned

    def abandon(self) -> list[Task]:
        """The coroutine goes; returns what it has not seen of a look that has ended."""
        with self._lock:
            self._abandoned = True
            return self._taken


class Busy:
    """How many threads are within its block."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._threads = 0

    def __enter__(self) -> None:
        with self._changed:
            self._threads += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._threads -= 1
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait until there are none, but no longer than this."""
        with self._changed:
            self._changed.wait_for(lambda: not self._threads, seconds)
