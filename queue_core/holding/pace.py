"""How fast entries end here.

This decides how many shared entries, which any node may run, this node may hold.
"""

from __future__ import annotations

from queue_core.runtime.clock import Clock
from queue_core.runtime.lock import Lock

WINDOW_SECONDS = 0.1
"""Over which ends are counted. No benchmark compares it with others."""


class Pace:
    """Runs that ended in the last `WINDOW_SECONDS`, about."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counting = Lock()
        self._before = self._now = 0
        """Runs that ended in the window before, and in the one under way."""
        self._since = clock.monotonic()

    def ended(self, entries: int) -> None:
        """Count runs of entries that have just ended here."""
        now = self._clock.monotonic()
        with self._counting:
            if (passed := now - self._since) > WINDOW_SECONDS:
                self._before = self._now if passed < 2 * WINDOW_SECONDS else 0
                self._now, self._since = 0, now
                # What a slow commit has held up is no burst.
                entries = int(entries * WINDOW_SECONDS / passed)
            self._now += entries

    @property
    def entries(self) -> int:
        """Runs that ended here in a window, about; 0 if none did lately."""
        stale = self._clock.monotonic() - self._since > 2 * WINDOW_SECONDS
        # The window that is under way counts as soon as it has seen more: a backlog's first 100 ms
        # are not held back.
        return 0 if stale else max(self._before, self._now)
