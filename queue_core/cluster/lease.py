"""A node's lease, by its own monotonic clock: its end, and how steadily it was renewed."""

from __future__ import annotations

from queue_core.runtime.clock import Clock

MARGIN = 0.1
"""Share of the lease that a node gives up: another may judge it dead soon after."""


class Lease:
    """Held from the moment when its last successful beat was *sent*. `seconds` is its length."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self.seconds = seconds
        self._deadline = float("-inf")
        self._last_beat = float("-inf")
        self._steady_since: float | None = None
        """Monotonic time since when no beat has failed; None while they fail."""
        self._gaps: list[tuple[float, float]] = []
        """Gaps between beats, and their ends: each the last one of its length or longer."""

    def holds(self) -> bool:
        """Whether it holds for sure: a run that starts now starts before a node may reap it."""
        return self._clock.monotonic() < self._deadline

    @property
    def left_seconds(self) -> float:
        """Seconds until it ends, were no further beat to succeed; 0 if it has ended."""
        return max(0.0, self._deadline - self._clock.monotonic())

    def steady_from(self, longest_gap: float) -> float | None:
        """Since when (monotonic) no two beats were further apart than `longest_gap` seconds.

        None if the last beat failed, or is longer ago than that.
        """
        # In this order: if a gap begins in between, it shows in the last line.
        last_beat = self._last_beat
        since, gaps = self._steady_since, self._gaps
        if since is None or self._clock.monotonic() - last_beat > longest_gap:
            return None
        return next((end for seconds, end in reversed(gaps) if seconds > longest_gap), since)

    def renew(self, sent: float) -> None:
        """A beat sent at `sent` (monotonic) has succeeded."""
        # A long gap: the others' beats that this node saw before it say nothing. It is
        # noted before the beat: `steady_from` reads the beat first.
        if self._steady_since is None:
            self._gaps, self._steady_since = [], sent
        else:
            gap = sent - self._last_beat
            self._gaps = [*(longer for longer in self._gaps if longer[0] > gap), (gap, sent)]
        self._last_beat = sent
        self._deadline = sent + self.seconds * (1 - MARGIN)

    def miss(self) -> None:
        """A beat has failed.

        A cause that keeps this node's beats from the database keeps those of others, too.
        """
        self._steady_since = None

    def end(self) -> None:
        """It holds no longer, even if time is left of it."""
        self._deadline, self._steady_since = float("-inf"), None
