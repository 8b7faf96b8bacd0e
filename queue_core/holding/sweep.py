"""The sweep: gives back entries that this node runs by the table, unknown to the ledger.

Such rows come from commits of unknown outcome: the caller got no answer, or announced it too early.
"""

from __future__ import annotations

from typing import Protocol

from queue_core.holding.holdings import Holdings
from queue_core.runtime.log import get_logger

log = get_logger(__name__)

SHARE = 50
"""The pause after a sweep, as a multiple of its duration.

It is a poll interval at least, and a lease at most. It is a lease if nothing was posted or claimed
since the sweep before. Sweeps in quick succession take a fiftieth of the time so. No benchmark
compares it with others.
"""


class Announced(Protocol):
    """Knows the ids of other posts that may have committed."""

    def ids(self) -> set[int]:
        """The ids that are looked up by others."""
        ...


class Sweep:
    """Taken in the claim loop's turns."""

    def __init__(self, holdings: Holdings, announced: Announced) -> None:
        self._holdings = holdings
        self._announced = announced
        self.next_turn = 0.0
        """Monotonic time of the next sweep, unless there is a doubt before."""
        self._changes = 0

    def turn(self, now: float) -> int:
        """Sweep if it is time to, and return the number of entries that were given back."""
        if now < self.next_turn and not self._holdings.doubtful:
            return 0
        with self._holdings.gates.sweeping() as quiet:
            return self._sweep() if quiet else 0

    def _sweep(self) -> int:
        holdings, config = self._holdings, self._holdings.config
        holdings.doubtful = False  # first: this sweep may have read the table before the next doubt
        began = holdings.clock.monotonic()
        claimed = holdings.in_processing()
        # These are read after the table: own posts enter the ledger, others are announced, before
        # they commit.
        announced = self._announced.ids()
        unknown = [
            claim
            for claim in claimed
            if claim[0] not in holdings.ledger and claim[0] not in announced
        ]
        released = holdings.release(unknown)
        holdings.ledger.displace(record_id for record_id, _ in unknown)
        if released:
            log.info("entries_swept", node=holdings.name, table=config.table, entries=released)
        ended = holdings.clock.monotonic()
        longest = max(config.node.lease_seconds, config.poll_interval_seconds)
        changes, self._changes = self._changes, holdings.ledger.changes
        idle = changes == self._changes and not announced
        pause = longest if idle else max(config.poll_interval_seconds, SHARE * (ended - began))
        self.next_turn = ended + min(pause, longest)
        return released
