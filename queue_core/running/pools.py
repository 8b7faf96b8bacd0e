"""The pool of this start, and those of former starts some of whose handlers still run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from queue_core.model.entry import Entry
from queue_core.running.dispatcher import Dispatcher


class Pools:
    """Each start has a pool of its own: a stop can't wait for ever for the handlers of the one before."""

    def __init__(self, make: Callable[[], Dispatcher]) -> None:
        """`make` is called for the first pool when that is first asked for."""
        self._make = make
        self._current: Dispatcher | None = None
        self._former: list[Dispatcher] = []

    @property
    def current(self) -> Dispatcher:
        """The pool of this start, or of the last one."""
        if self._current is None:
            self._current = self._make()
        return self._current

    def renew(self) -> None:
        """Make a pool for a start."""
        self._former = [pool for pool in [*self._former, self.current] if pool.running()]
        self._current = self._make()

    def submit(self, entries: Sequence[Entry], lease: int, taken: list[None] | None = None) -> None:
        """See `Dispatcher.submit`."""
        self.current.submit(entries, lease, taken)

    def call(self, hook: Callable[[], None]) -> None:
        """See `Dispatcher.call`."""
        self.current.call(hook)

    def running(self) -> list[Entry]:
        """The entries whose handlers run, in all pools."""
        return [entry for pool in [*self._former, self.current] for entry in pool.running()]
