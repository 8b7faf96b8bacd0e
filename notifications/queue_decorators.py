"""The decorators of handlers, each of which creates a queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Never, Protocol, TypeVar

from queue_core.running.subscriber import EntryContext, ExactlyOnceContext

N = TypeVar("N", bound=Callable[[Never], object] | Callable[[Never, EntryContext], object])
X = TypeVar("X", bound=Callable[[Never, ExactlyOnceContext], object])


class Decorate(Protocol):
    """A decorator of handlers."""

    def __call__(self, handler: N, /) -> N:
        """Create the queue, and return the handler."""
        ...


class DecorateExactlyOnce(Protocol):
    """A decorator of exactly-once handlers."""

    def __call__(self, handler: X, /) -> X:
        """Create the queue, and return the handler."""
        ...
