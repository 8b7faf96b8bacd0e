"""Looks at entries that wait for others, where no end of these could decide.

Such as those that callers' transactions have posted: a node learns of them once they are committed.
"""

from __future__ import annotations

from math import inf

from queue_core.claiming.claimer import Claimer
from queue_core.holding.holdings import Holdings
from queue_core.links.dependencies import BATCH

FIRST_LOOK_SECONDS = 0.0005
LOOKS = 12
"""After the end of a transaction was announced: looks after 0, 0.5, 1, 2 … ms (1 s in all)."""


class WaitingEntries:
    """The waiting entries of one main table, as one node sees them."""

    def __init__(self, holdings: Holdings, claimer: Claimer) -> None:
        self._holdings = holdings
        self._claimer = claimer
        self._at = 0.0
        self._looks_left = 0

    def announce(self) -> None:
        """A caller's transaction that posted such entries has ended, or is about to."""
        self._looks_left = LOOKS
        self._at = 0.0
        self._claimer.turn_soon()

    @property
    def next_look(self) -> float:
        """The monotonic time of the next turn."""
        return self._at

    def turn(self, now: float) -> None:
        """Look at what is due, if it is time to."""
        if now < self._at:
            return
        self._at = inf  # first: an announcement meanwhile is for the next turn
        left, store = self._looks_left, self._holdings.store
        found = 0
        if store.database.fetch(store.dependencies.are_due):
            found = store.database.write(store.dependencies.look)
            self._claimer.wake()
        if found == BATCH:
            pause = 0.0
        elif left > 0 and not found:
            pause = FIRST_LOOK_SECONDS * 2 ** (LOOKS - left)
        else:
            pause = self._holdings.config.poll_interval_seconds
        self._looks_left = max(0, min(self._looks_left, left) - 1)
        self._at = min(self._at, now + pause)
