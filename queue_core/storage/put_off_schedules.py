"""Schedules that are not tried for a while, as their due notifications could not be inserted."""

from __future__ import annotations

import threading
from collections.abc import Collection

from queue_core.runtime.clock import Clock

FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 1.0, 60.0
"""After the first failure; each further one doubles it up to the latter."""


class PutOffSchedules:
    """In the memory of this process, by queue and name: each process finds out for itself."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._put_off = dict[str, dict[str, tuple[float, float]]]()
        """The length of each one's delay, and its end (monotonic)."""

    def put_off(self, queue: str, name: str) -> float:
        """Let a schedule be for a while; returns the seconds."""
        with self._lock:
            put_off = self._put_off.setdefault(queue, {})
            before, _ = put_off.get(name, (0.0, 0.0))
            seconds = min(max(2 * before, FIRST_DELAY_SECONDS), LONGEST_DELAY_SECONDS)
            put_off[name] = (seconds, self._clock.monotonic() + seconds)
        return seconds

    def try_again(self, queue: str, names: Collection[str] | None = None) -> None:
        """Forget the failures of schedules: of all of a queue, or of these."""
        with self._lock:
            put_off = self._put_off.get(queue, {})
            for name in list(put_off) if names is None else names:
                put_off.pop(name, None)
            if not put_off:
                self._put_off.pop(queue, None)

    def of(self, queue: str) -> dict[str, float]:
        """The schedules of a queue that have failed, with the seconds that they are to be let be.

        Below 0: they may be tried again.
        """
        now = self._clock.monotonic()
        with self._lock:
            return {name: end - now for name, (_, end) in self._put_off.get(queue, {}).items()}
