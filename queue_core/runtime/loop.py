"""A thread that takes one turn after the other, and never dies of an error.

Between turns it waits for a signal.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from queue_core.runtime.clock import Clock
from queue_core.runtime.log import get_logger
from queue_core.runtime.signal import Signal

log = get_logger(__name__)

FIRST_BACKOFF_SECONDS = 0.05
LONGEST_BACKOFF_SECONDS = 5.0
"""The pause after a failed turn; each further failure doubles it, up to the longest."""


class Loop:
    """Drives `turn`.

    `turn` does one round of work, and returns the seconds until the next (0: at once).

    After an error the wait doubles from 50 ms to `longest_backoff_seconds`, with jitter, so that
    the nodes of a recovering database don't come back in step (Brooker, "Exponential Backoff And
    Jitter", 2015).
    """

    def __init__(
        self,
        name: str,
        turn: Callable[[], float],
        clock: Clock,
        *,
        signal: Signal | None = None,
        longest_backoff_seconds: float = LONGEST_BACKOFF_SECONDS,
    ) -> None:
        """`signal` wakes it, for those who know no more of it."""
        self.name = name
        self._longest_backoff_seconds = longest_backoff_seconds
        self._turn = turn
        self._clock = clock
        self._signal = signal or Signal()
        self.wake = self._signal.set
        """Take the next turn now."""
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._stopping = False
        thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        thread.start()
        self._thread = thread  # not one that could not be started: it can't be waited for

    def stop(self, timeout_seconds: float | None = None) -> None:
        """Let the turn end and the thread with it."""
        self._stopping = True
        self._signal.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_seconds)

    def _run(self) -> None:
        failures = 0
        while not self._stopping:
            try:
                pause = self._turn()
            except Exception as error:  # noqa: BLE001 -- the loop outlives any error of its turn
                pause = self.pause_after(error, failures)
                failures += 1
                # A signal must not cut the back-off short: work that keeps coming would make it a
                # hot loop.
                self._signal.clear()
                self._pause_deaf(pause)
                continue
            if failures:
                log.info("loop_recovered", loop=self.name, failures=failures)
                failures = 0
            if pause > 0:
                self._clock.wait(self._signal, pause)

    def pause_after(self, error: Exception, failures: int) -> float:
        """Log a turn that failed; return the seconds until it is tried again."""
        # A float overflows after 1,024 failures, an hour and a half of an outage.
        longest = min(
            self._longest_backoff_seconds, FIRST_BACKOFF_SECONDS * 2.0 ** min(failures, 100)
        )
        pause = random.uniform(0.5, 1.0) * longest  # noqa: S311 -- spreads them
        expected = isinstance(error, SQLAlchemyError)
        log.warning(
            "loop_failed",
            loop=self.name,
            error_type=type(error).__name__,
            error=str(getattr(error, "orig", error)),
            pause_seconds=round(pause, 3),
            exc_info=None if expected else error,
        )
        return pause

    def _pause_deaf(self, seconds: float) -> None:
        deadline = self._clock.monotonic() + seconds
        while not self._stopping and (left := deadline - self._clock.monotonic()) > 0:
            self._clock.wait(self._signal, left)
