"""When a node looks for what callers' transactions have posted, and committed since."""

from __future__ import annotations

from queue_core.model.config import QueueConfig

FIRST_LOOK_SECONDS = 0.0005
LOOKS = 12
"""After the end of a transaction was announced: looks after 0, 0.5, 1, 2 … ms (1 s in all)."""


class CommitLooks:
    """The times of looks (monotonic): soon after an announcement, else once in a while."""

    def __init__(self, config: QueueConfig) -> None:
        """Where nothing was announced, `config.poll_interval_seconds` lie between two looks."""
        self._config = config
        self.next_look = 0.0
        """The time of the next look."""
        self._left = self._left_before = 0
        """Looks that the last announcement still asks for: now, and when this look began."""

    def announce(self) -> None:
        """A caller's transaction has ended, or is about to."""
        self._left = LOOKS
        self.next_look = 0.0

    def begin(self, now: float) -> bool:
        """Whether it is time to look."""
        if now < self.next_look:
            return False
        # First: an announcement meanwhile is for the next look. If this one fails, as while the
        # database is away, there is another.
        self.next_look = now + self._config.poll_interval_seconds
        self._left_before = self._left
        return True

    def end(self, now: float, *, found: bool, more: bool) -> None:
        """A look that began `now` has ended. `more`: there may be more than it has found."""
        left = self._left_before
        if more:
            pause = 0.0
        elif left > 0 and not found:
            pause = FIRST_LOOK_SECONDS * 2 ** (LOOKS - left)
        else:
            pause = self._config.poll_interval_seconds
        self._left = max(0, min(self._left, left) - 1)
        self.next_look = min(self.next_look, now + pause)
