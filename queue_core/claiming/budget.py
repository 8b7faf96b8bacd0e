"""The number of entries that may be claimed now.

It follows from the pool's room, a fair share, and the claims that other threads are about to make.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from queue_core.holding.ledger import Ledger
from queue_core.holding.pace import Pace
from queue_core.model.config import QueueConfig
from queue_core.model.lanes import ANY_NODE, SUSPECT, Lane
from queue_core.runtime.lock import Lock

BATCHES = 4
"""Full claims that the pool holds beside those that run.

With two, claims waited for the commits of outcomes: a drain was slower by 27 % on PostgreSQL, by
10 % on SQLite. Eight gained nothing more (ADR 0019).
"""
FAIR_SHARE = 2
"""Shared entries, which any node may run, that a node may hold for each handler thread.

A node whose handlers end more than this in `pace.WINDOW_SECONDS` may hold as many. No benchmark
compares it with other values.
"""


class Budget:
    """The entries that one bus or service may take on. Its numbers count entries.

    No claim is granted that would take a lane past its share, the entries that other threads claim
    counted in. Born claimed entries are not asked for here: they may fill the pool beyond it. Of
    suspects, one is claimed at a time.
    """

    def __init__(self, config: QueueConfig, ledger: Ledger, pace: Pace) -> None:
        self._threads, self._most = config.handler_threads, config.max_entries_claimed
        self._capacity = min(
            self._threads + BATCHES * self._most, max(self._threads, config.queue_capacity)
        )
        """The number of entries that the pool holds.

        With them its threads are busy while claims and outcomes are under way.
        """
        self._ledger = ledger
        self._pace = pace
        self._under_way, self._booking = dict[int, int](), Lock()
        """By thread, how many the claim that is under way there may take."""

    def room(self) -> int:
        """The number that the pool takes now."""
        return self._capacity - self._ledger.active

    @property
    def suffices(self) -> bool:
        """Whether the threads have enough to do until the next outcomes are written soon."""
        return self._ledger.active > self._threads + self._most and self._pace.entries >= self._most

    def limit(self, lane: Lane, ending: Collection[int] = ()) -> int:
        """Return how many entries of a lane may be claimed now.

        Entries with the ids `ending` are about to end.
        """
        if lane == SUSPECT:
            return 0 if self._ledger.held_from(SUSPECT) else 1
        if lane == ANY_NODE:
            # Entries in the node's own lane must not keep it from its share.
            share = max(FAIR_SHARE * self._threads, self._pace.entries)
            capacity = min(share, self._capacity)
            room = capacity - self._ledger.active_from(ANY_NODE, besides=ending)
        else:
            capacity, room = self._capacity, self.room() + len(ending)
        mine = threading.get_ident()
        room -= sum(limit for thread, limit in list(self._under_way.items()) if thread != mine)
        # Each claim is a commit: few large ones. Where half of a share is active, no thread idles
        # meanwhile.
        return min(self._most, room) if room >= min(self._most, capacity // 2) else 0

    @contextmanager
    def booked(self, lane: Lane, ending: Collection[int] = ()) -> Iterator[int]:
        """Yield how many entries may be claimed from `lane` in the block.

        Other threads leave these out meanwhile.
        """
        thread = threading.get_ident()
        try:
            with self._booking:
                limit = self._under_way[thread] = self.limit(lane, ending)
            yield limit
        finally:
            self._under_way.pop(thread, None)
