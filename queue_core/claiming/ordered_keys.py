"""Starts order keys of entries that callers' transactions have posted.

Such a transaction can't give a key its turn: it would hold up others who post with the key. So it
marks its entries, and a node starts their keys once they are committed.
"""

from __future__ import annotations

from functools import partial

from queue_core.claiming.linked_looks import LinkedLooks

BATCH = 100
"""Entries whose keys a turn starts, each key in a transaction. No benchmark compares it."""


class OrderedKeys(LinkedLooks):
    """The order keys of one main table, as one node sees them."""

    def look(self) -> int:
        """Start the keys of committed posts, and return their number."""
        store, ordering = self._store, self._store.ordering
        keys = store.database.fetch(
            lambda connection: ordering.statements.unstarted(connection, store.config.table, BATCH)
        )
        for key in keys:
            if store.database.write(partial(ordering.begin_turn, key=key)) is not None:
                self._claimer.wake()
        return len(keys)
