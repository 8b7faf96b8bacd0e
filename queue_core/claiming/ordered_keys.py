"""Starts order keys of entries that callers' transactions have posted.

Such a transaction can't give a key its turn: it would hold up others who post with the key. So it
marks its entries, and a node starts their keys once they are committed.
"""

from __future__ import annotations

from functools import partial

from queue_core.claiming.claimer import Claimer
from queue_core.claiming.commit_looks import CommitLooks
from queue_core.holding.holdings import Holdings

BATCH = 100
"""Entries whose keys a turn starts, each key in a transaction."""


class OrderedKeys:
    """The order keys of one main table, as one node sees them."""

    def __init__(self, holdings: Holdings, claimer: Claimer) -> None:
        self._holdings = holdings
        self._claimer = claimer
        self._looks = CommitLooks(holdings.config)

    def announce(self) -> None:
        """A caller's transaction that posted entries with order keys has ended, or is about to."""
        self._looks.announce()
        self._claimer.turn_soon()

    @property
    def next_look(self) -> float:
        """The monotonic time of the next turn."""
        return self._looks.next_look

    def turn(self, now: float) -> None:
        """Start what has committed, if it is time to look."""
        if not self._looks.begin(now):
            return
        store = self._holdings.store
        ordering = store.ordering
        keys = store.database.fetch(
            lambda connection: ordering.statements.unstarted(connection, store.config.table, BATCH)
        )
        for key in keys:
            if store.database.write(partial(ordering.begin_turn, key=key)) is not None:
                self._claimer.wake()
        self._looks.end(now, found=bool(keys), more=bool(keys))
