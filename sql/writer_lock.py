"""The lock of writers, where only one of them may be at work at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class WriterLock:
    """A block in which the library writes.

    It does nothing where the server queues writers itself.
    """

    __slots__ = ()

    def begin(self) -> None:
        """Wait for the turn; DBAPIError if it does not come."""

    def end(self) -> None:
        """End it, if it has begun."""

    def within(self, work: Callable[[], T]) -> T:
        """Run `work` in it. No `with` block, whose end an exception from outside may cut off."""
        try:
            self.begin()
            answer = work()
            self.end()
        except BaseException:
            self.end()
            raise
        return answer


NO_LOCK = WriterLock()
