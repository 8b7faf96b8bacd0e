"""Starts order keys of entries that callers' transactions have posted.

Such a transaction can't give a key its turn: it would hold up others who post with the key. So it
marks its entries, and a node starts their keys once they are committed.
"""

from __future__ import annotations

from functools import partial
from math import inf

from queue_core.claiming.claimer import Claimer
from queue_core.holding.holdings import Holdings

FIRST_LOOK_SECONDS = 0.0005
LOOKS = 12
"""After the end of a transaction was announced: looks after 0, 0.5, 1, 2 … ms (1 s in all)."""
BATCH = 100
"""Entries whose keys a turn starts, each key in a transaction."""


class OrderedKeys:
    """The order keys of one main table, as one node sees them."""

    def __init__(self, holdings: Holdings, claimer: Claimer) -> None:
        self._holdings = holdings
        self._claimer = claimer
        self._at = 0.0
        self._looks_left = 0

    def announce(self) -> None:
        """A caller's transaction that posted entries with order keys has ended, or is about to."""
        self._looks_left = LOOKS
        self._at = 0.0
        self._claimer.turn_soon()

    @property
    def next_look(self) -> float:
        """The monotonic time of the next turn."""
        return self._at

    def turn(self, now: float) -> None:
        """Start what has committed, if it is time to look."""
        if now < self._at:
            return
        self._at = inf  # first: an announcement meanwhile is for the next turn
        left = self._looks_left
        store = self._holdings.store
        ordering = store.ordering
        keys = store.database.fetch(
            lambda connection: ordering.statements.unstarted(connection, store.config.table, BATCH)
        )
        for key in keys:
            if store.database.write(partial(ordering.begin_turn, key=key)) is not None:
                self._claimer.wake()
        if keys:  # there may be more
            pause = 0.0
        elif left > 0:
            pause = FIRST_LOOK_SECONDS * 2 ** (LOOKS - left)
        else:
            pause = self._holdings.config.poll_interval_seconds
        self._looks_left = max(0, min(self._looks_left, left) - 1)
        self._at = min(self._at, now + pause)
