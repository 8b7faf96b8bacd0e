"""The pace at which entries end here.

This decides how many shared entries, which any node may run, this node may hold.
"""

from __future__ import annotations

from queue_core.runtime.clock import Clock
from queue_core.runtime.lock import Lock

WINDOW_SECONDS = 0.1
"""Seconds over which ends are counted, from the first run on (ADR 0019).

No benchmark compares it with others.
"""
LULL_SECONDS = 1.0
"""Seconds after which earlier ends say nothing any more. No benchmark compares it with others."""
GROWTH = 2.0
"""The multiple of its ended entries that a node may hold, if its handlers had nothing to do.

Without it, each of 16 processes that wrote to one SQLite file in turns ended few entries between
its turns, so claimed few, and so ended few: together a tenth of the rate of one process (ADR 0019).
"""


class Pace:
    """About how many runs end here while handlers run for `WINDOW_SECONDS`.

    Time is not counted in which they waited for entries, or outcomes for a transaction.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counting = Lock()
        self._before = 0
        self._ended, self._busy_seconds = 0, 0.0
        """Runs that ended in the window that is under way, and how long handlers ran in it."""
        self._since = self._last = clock.monotonic()

    def ended(self, entries: int, seconds: float) -> None:
        """Count runs of entries that have just ended here; handlers ran `seconds` for them."""
        now = self._clock.monotonic()
        with self._counting:
            passed = now - self._since
            if passed > WINDOW_SECONDS:
                self._before = self._in_window() if passed < LULL_SECONDS else 0
                self._ended, self._busy_seconds, self._since = 0, 0.0, now
            self._ended += entries
            # Runs overlap, and those of an earlier batch are counted.
            self._busy_seconds += min(seconds, now - self._last)
            self._last = now

    def _in_window(self) -> int:
        longest = self._ended * GROWTH
        busy = self._busy_seconds
        return int(min(longest, self._ended * WINDOW_SECONDS / busy) if busy else longest)

    @property
    def entries(self) -> int:
        """About how many runs end here in a window; 0 if none did lately."""
        if self._clock.monotonic() - self._last > LULL_SECONDS:
            return 0
        # The window that is under way counts as soon as it has seen more: a backlog's first 100 ms
        # are not held back.
        return max(self._before, self._in_window())
