"""Looks for what can be claimed, in threads for coroutines, which may go before they end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Look(Generic[T]):
    """One look.

    Its coroutine sees what it takes, or the one who finds that this has gone.
    """

    def __init__(self, take: Callable[[], list[T]]) -> None:
        self._take = take
        self._lock = threading.Lock()
        self._taken = list[T]()
        self._abandoned = False

    def run(self) -> tuple[list[T], list[T]]:
        """Take; returns what is for the coroutine, and what it does not see any more."""
        taken = self._take() if self._is_awaited() else []
        with self._lock:
            self._taken = taken
            return (taken, []) if self._is_awaited() else ([], taken)

    def _is_awaited(self) -> bool:
        return not self._abandoned

    def abandon(self) -> list[T]:
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
