"""Starts order keys of entries that callers' transactions have posted.

Such a transaction can't give a key its turn: it would hold up others who post with the key. So it
marks its entries, and a node starts their keys once they are committed.
"""

from __future__ import annotations

from functools import partial

from queue_core.claiming.claimer import Claimer
from queue_core.links.ordering import Turn
from queue_core.storage.store import Store
from sql.statements.ordered import OrderKey

BATCH = 100
"""Keys that a turn starts, each in a transaction. No benchmark compares it."""
MOST_READ = 1_000
"""Entries that a turn reads at most. With more that are put off, others wait for those."""


class OrderedKeys:
    """The order keys of one main table, as one node sees them."""

    def __init__(self, store: Store, claimer: Claimer) -> None:
        self._store = store
        self._claimer = claimer
        self._later = set[OrderKey]()
        """The keys that were put off. They don't crowd out others."""

    def look(self) -> int:
        """Start the keys of committed posts, and return the number of those that had their turn."""
        store, ordering = self._store, self._store.ordering
        limit = min(BATCH + 2 * len(self._later), MOST_READ)
        keys = store.database.fetch(
            lambda connection: ordering.statements.unstarted(connection, store.config.table, limit)
        )
        keys.sort(key=self._later.__contains__)
        results = {
            key: store.database.write(partial(ordering.begin_turn, key=key)) for key in keys[:BATCH]
        }
        if {*results.values()} - {Turn.NONE}:
            self._claimer.wake()
        later = {key for key, turn in results.items() if turn is Turn.LATER}
        self._later = self._later.intersection(keys[BATCH:]) | later
        return len(results) - len(later)
