"""A repeated look at what callers' transactions have left to a node to decide."""

from __future__ import annotations

from collections.abc import Callable

from queue_core.claiming.claimer import Claimer
from queue_core.claiming.commit_looks import CommitLooks
from queue_core.holding.holdings import Holdings


class RepeatedLook:
    """It comes soon after an announcement, else once in a poll interval."""

    def __init__(self, holdings: Holdings, claimer: Claimer, look: Callable[[], int]) -> None:
        """`look` makes the decisions that are due, and returns their number."""
        self._claimer = claimer
        self._look = look
        self._looks = CommitLooks(holdings.config.poll_interval_seconds)

    def announce(self) -> None:
        """A caller's transaction that has left something to decide has ended, or is about to."""
        self._looks.announce()
        self._claimer.turn_soon()

    @property
    def next_look(self) -> float:
        """The monotonic time of the next turn."""
        return self._looks.next_look

    def turn(self, now: float) -> None:
        """Look, if it is time to."""
        if self._looks.begin(now):
            found = self._look() > 0
            self._looks.end(now, found=found, more=found)
