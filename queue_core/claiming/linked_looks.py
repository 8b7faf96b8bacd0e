"""Looks at links that callers' transactions have changed.

Such a transaction may not wait for rows of others, nor hold rows that they wait for. So it leaves
the decision to a node, which learns of it once it is committed: about entries that wait for others,
and about groups that may be complete.
"""

from __future__ import annotations

from queue_core.claiming.claimer import Claimer
from queue_core.claiming.commit_looks import CommitLooks
from queue_core.holding.holdings import Holdings


class LinkedLooks:
    """The dependencies and groups of one main table, as one node sees them."""

    def __init__(self, holdings: Holdings, claimer: Claimer) -> None:
        self._store = holdings.store
        self._claimer = claimer
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
        """Look at due rows, if it is time to."""
        if self._looks.begin(now):
            found = self.look() > 0
            self._looks.end(now, found=found, more=found)

    def look(self) -> int:
        """Make the decisions that are due, and return their number."""
        found = 0
        for kind in (self._store.dependencies, self._store.groups):
            if self._store.database.fetch(kind.are_due):
                found += self._store.database.write(kind.look)
                self._claimer.wake()
        return found
