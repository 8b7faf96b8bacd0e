"""Starts order keys of entries that callers' transactions have posted.

Such a transaction can't give a key its turn: it would hold up others who post with the key. So it
marks its entries, and a node starts their keys once they are committed.
"""

from __future__ import annotations

from functools import partial

from queue_core.claiming.linked_looks import LinkedLooks
from queue_core.links.ordering import Turn

BATCH = 100
"""Entries whose keys a turn starts, each key in a transaction. No benchmark compares it."""


class OrderedKeys(LinkedLooks):
    """The order keys of one main table, as one node sees them."""

    _later = 0
    """The keys that the last look has put off. They don't crowd out others."""

    def look(self) -> int:
        """Start the keys of committed posts, and return the number of those that had their turn."""
        store, ordering = self._store, self._store.ordering
        limit = BATCH + 2 * self._later
        keys = store.database.fetch(
            lambda connection: ordering.statements.unstarted(connection, store.config.table, limit)
        )
        results = [store.database.write(partial(ordering.begin_turn, key=key)) for key in keys]
        if {*results} - {Turn.NONE}:
            self._claimer.wake()
        self._later = results.count(Turn.LATER)
        return len(results) - self._later
