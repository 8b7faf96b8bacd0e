"""Calls that wait in their own threads, and the transport that carries them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from queue_core.errors import LifecycleError
from queue_core.runtime.signal import Signal
from work_queue.remote.anew import Anew
from work_queue.remote.transport import BlockingTransport


class BlockingCalls(Anew):
    """Their transport begins with the first call, and anew in a child process of a fork."""

    def __init__(self, connect: Callable[[], BlockingTransport]) -> None:
        super().__init__()
        self._connect = connect
        self._transports = list[BlockingTransport]()
        """The last is of this process. Others are from before a fork: what ends them is sent."""
        self._running = dict[object, int]()
        """The threads of calls that run."""
        self._ended = False

    def forked(self) -> None:
        """See `Anew.forked`."""
        super().forked()
        self._fewer = Signal()

    @contextmanager
    def begun(self) -> Iterator[BlockingTransport]:
        """A block in which a call runs. Raises LifecycleError after the end."""
        call = object()
        try:
            yield self._begin(call)
        finally:
            self._running.pop(call, None)
            if self._ended:
                self._fewer.recheck()

    def _begin(self, call: object) -> BlockingTransport:
        with self._lock:
            if self._ended:
                raise LifecycleError("the work queue was closed. Nothing was done.")
            if not self._has_begun:
                self._transports.append(self._connect())
                self._running.clear()
                self._has_begun = True
            self._running[call] = threading.get_ident()
            return self._transports[-1]

    def end(self, leave: Callable[[BlockingTransport], None], seconds: float) -> None:
        """Take no more calls, let those leave that wait, and cut what goes on after some seconds.

        In a child process of a fork that has called nothing there is nothing to end. One that was
        interrupted may be called again.
        """
        with self._lock:
            self._ended = True
            if not self._has_begun:
                return
        transport = self._transports[-1]
        try:
            leave(transport)
            self._fewer.wait_until(self._none_runs, seconds)
        finally:
            transport.close()

    def _none_runs(self) -> bool:
        """But in this thread, which a signal has brought here: that one can't end before."""
        with self._lock:
            return not {*self._running.values()} - {threading.get_ident()}
