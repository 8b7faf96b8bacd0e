"""Looks at links that callers' transactions have changed.

Such a transaction may not wait for rows of others, nor hold rows that they wait for. So it leaves
the decision to a node, which learns of it once it is committed: about entries that wait for others,
and about groups that may be complete.
"""

from __future__ import annotations

from queue_core.claiming.claimer import Claimer
from queue_core.storage.store import Store


class LinkedLooks:
    """The dependencies and groups of one main table, as one node sees them."""

    def __init__(self, store: Store, claimer: Claimer) -> None:
        self._store = store
        self._claimer = claimer

    def look(self) -> int:
        """Make the decisions that are due, and return their number."""
        found = 0
        for kind in (self._store.dependencies, self._store.groups):
            if self._store.database.fetch(kind.are_due):
                found += self._store.database.write(kind.look)
                self._claimer.wake()
        return found
