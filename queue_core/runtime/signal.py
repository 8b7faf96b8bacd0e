"""The flag by which one thread wakes another."""

from __future__ import annotations

import threading
from collections.abc import Callable

from queue_core.runtime.lock import Lock


class Signal:
    """A wake-up flag between threads: any may set it, one waits for it through `Clock.wait`."""

    __slots__ = ("_changed", "_lock", "_raised")

    def __init__(self) -> None:
        # Taken itself where exceptions from outside may come: of a condition they would leave it
        # locked.
        self._lock = Lock()
        self._changed = threading.Condition(self._lock)
        self._raised = False

    def set(self) -> None:
        """Raise the flag and wake the waiter. Publish the work before this call."""
        # Without the lock: a thread that finds the flag up has published its work before the waiter
        # lowers it, and the waiter looks for work only after that.
        if self._raised:
            return
        with self._lock:
            # In this order: a flag that is up, and of which the waiter was not told, would keep it
            # asleep.
            self._changed.notify_all()
            self._raised = True

    def clear(self) -> None:
        """Lower the flag."""
        self._raised = False

    @property
    def is_set(self) -> bool:
        """Whether the flag is up."""
        return self._raised

    def recheck(self) -> None:
        """For clocks: make the waiter look at the time again, flag or not."""
        with self._changed:
            self._changed.notify_all()

    def wait_until(self, over: Callable[[], bool], timeout_seconds: float | None) -> bool:
        """For clocks: wait for the flag, for `over()`, or for a real time.

        Returns whether the flag was raised within `timeout_seconds`.
        """
        # Read and lowered under the lock: a flag raised between the two would be lost.
        with self._changed:
            self._changed.wait_for(lambda: self._raised or over(), timeout_seconds)
            raised, self._raised = self._raised, False
            return raised
