"""The gate of a serial handler: one call at a time, in order."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any, Protocol

from queue_core.runtime.lock import Lock


class Pool(Protocol):
    """The pool that starts a run."""

    @property
    def accepting(self) -> bool:
        """Whether it starts submitted runs."""
        ...

    def begins_to_wait(self, run: Any) -> None:
        """A run begins to wait at a gate.

        This and `waits_no_longer` are called under the gate's lock, so in order.
        """
        ...

    def waits_no_longer(self, run: Any) -> None:
        """A run that waited at a gate has come through."""
        ...

    def resume(self, run: Any) -> bool:
        """Go on with a run that may come through; False if this pool has stopped."""
        ...


class GatedRun(Protocol):
    """A run, as a gate sees it."""

    @property
    def pool(self) -> Pool:
        """The pool that starts it."""
        ...


class SerialGate:
    """A run that finds the handler busy is kept in order, and holds no thread meanwhile.

    Runs that come to it first of all are expected in the order in which they were submitted: of two
    threads that take one each, the second may be the faster.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._holder: GatedRun | None = None
        self.expected = OrderedDict[GatedRun, bool]()
        """Whether each has arrived, and waits to be handed out."""
        self.others: deque[GatedRun] = deque()

    def expect(self, run: GatedRun) -> None:
        """Keep a place, to be given up by `pass_on`."""
        with self._lock:
            self.expected[run] = False

    def enter(self, run: GatedRun) -> bool:
        """Whether the call of `run` may begin.

        Else it was kept, and is resumed by the run before it.
        """
        with self._lock:
            expected = run in self.expected
            if self._holder is None and (not expected or run is self._first()):
                self._holder = run
                return True
            if expected:
                self.expected[run] = True
            else:
                self.others.append(run)
            run.pool.begins_to_wait(run)
            return False

    def pass_on(self, run: GatedRun) -> None:
        """End the call of `run`, or give up its place, and start the next run.

        If the pool of the next run has stopped, that run is given back.
        """
        following = self._leave(run)
        while following is not None and not following.pool.resume(following):
            following = self._leave(following)

    def _leave(self, run: GatedRun) -> GatedRun | None:
        with self._lock:
            self.expected.pop(run, None)
            if self._holder is run:
                self._holder = None
            if self._holder is not None:
                return None
            first = self._first()
            if first is not None and self.expected[first]:
                self.expected[first] = False
            else:
                first = self.others.popleft() if self.others else None
            if first is not None:
                first.pool.waits_no_longer(first)
            return first

    def _first(self) -> GatedRun | None:
        while self.expected:
            run = next(iter(self.expected))
            if self.expected[run] or run.pool.accepting:
                return run
            del self.expected[run]  # a stop may leave it in its queue for good
        return None
