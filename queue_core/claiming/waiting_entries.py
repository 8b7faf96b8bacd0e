"""Looks at entries that wait for others, where no end of these could decide.

Such as those that callers' transactions have posted: a node learns of them once they are committed.
"""

from __future__ import annotations

from queue_core.claiming.claimer import Claimer
from queue_core.claiming.commit_looks import CommitLooks
from queue_core.holding.holdings import Holdings
from queue_core.links.dependencies import BATCH


class WaitingEntries:
    """The waiting entries of one main table, as one node sees them."""

    def __init__(self, holdings: Holdings, claimer: Claimer) -> None:
        self._holdings = holdings
        self._claimer = claimer
        self._looks = CommitLooks(holdings.config)

    def announce(self) -> None:
        """A caller's transaction that posted such entries has ended, or is about to."""
        self._looks.announce()
        self._claimer.turn_soon()

    @property
    def next_look(self) -> float:
        """The monotonic time of the next turn."""
        return self._looks.next_look

    def turn(self, now: float) -> None:
        """Look at what is due, if it is time to."""
        if not self._looks.begin(now):
            return
        store = self._holdings.store
        found = 0
        if store.database.fetch(store.dependencies.are_due):
            found = store.database.write(store.dependencies.look)
            self._claimer.wake()
        self._looks.end(now, found=found > 0, more=found == BATCH)
