"""The pool of this start, and those of former starts some of whose handlers still run."""

from __future__ import annotations

from collections.abc import Callable

from queue_core.model.entry import Entry
from queue_core.model.transit import Transit
from queue_core.running.handler_pool import HandlerPool


class Pools:
    """The pools of all starts.

    Each start has another pool, because a stop can't wait for ever for the handlers of the one
    before.
    """

    def __init__(self, make: Callable[[], HandlerPool]) -> None:
        """`make` is called for the first pool when that is first asked for."""
        self._make = make
        self._current: HandlerPool | None = None
        self._former: list[HandlerPool] = []

    @property
    def current(self) -> HandlerPool:
        """The pool of this start, or of the last one."""
        if self._current is None:
            self._current = self._make()
        return self._current

    def renew(self) -> None:
        """Make a pool for a start."""
        self._former = [pool for pool in [*self._former, self.current] if pool.runner.running()]
        self._current = self._make()

    def submit(self, transit: Transit, epoch: int) -> None:
        """See `HandlerPool.submit`."""
        self.current.submit(transit, epoch)

    def call(self, hook: Callable[[], None]) -> None:
        """See `HandlerPool.call`."""
        self.current.call(hook)

    def running(self) -> list[Entry]:
        """The entries whose handlers run, in all pools."""
        return [entry for pool in [*self._former, self.current] for entry in pool.runner.running()]
