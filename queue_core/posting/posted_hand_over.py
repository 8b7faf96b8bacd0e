"""Hands committed entries that are held in the ledger over to the pool.

An exception may come at any place of it, from outside too: a signal's, a time limit's, for want of
memory. Entries that the pool does not have then are held no longer, and soon swept: so they run,
and once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from sqlalchemy.exc import SQLAlchemyError

from queue_core.claiming.claimer import Claimer
from queue_core.holding.holdings import Holdings, claims_of
from queue_core.model.entry import Entry
from queue_core.model.transit import Transit
from queue_core.running.pools import Pools

FROM_MEMORY = 2_000
"""Entries that may be handed to the pool from memory before they are kept by id only."""
LARGE_PAYLOAD = 8_192
"""Characters from which a payload is not kept in memory while its entry waits."""


class PostedHandOver:
    """From memory to the pool, or to those that wait by id."""

    def __init__(self, holdings: Holdings, pools: Pools, claimer: Claimer) -> None:
        self._holdings = holdings
        self._ledger = holdings.ledger
        self._pools = pools
        self._claimer = claimer

    def submit(self, entries: Sequence[Entry], epoch: int, transit: Transit) -> None:
        """Run `entries`, which `transit` holds: from memory if there is room, else later by id.

        Its caller calls `leave` after an exception.
        """
        if not self._holdings.running:
            # Their commit has outlasted the stop of this node, or its lease. It is no error of the
            # post.
            self._ledger.give_up(claims_of(entries))
            with suppress(SQLAlchemyError):  # then they are for the sweep, or for the reaper
                self._holdings.release(claims_of(entries))
            return
        room = FROM_MEMORY - self._ledger.active
        now_room = self._claimer.room()
        for place, entry in enumerate(entries):
            small = len(entry.event_json or entry.event_bytes or "") <= LARGE_PAYLOAD
            if not self._ledger.waiting and (place < now_room or (small and place < room)):
                transit.ready.append(entry)
            else:
                transit.later.append(entry.record_id)
        if transit.later:
            self._ledger.wait(transit)
        self._pools.submit(transit, epoch)
        if transit.later:
            self._claimer.turn_soon()

    def leave(self, transit: Transit) -> None:
        """Call it after an exception.

        Entries that were not handed over may have committed: the sweep finds them.
        """
        self._ledger.give_up((record_id, 1) for record_id in transit.stranded())
        self._holdings.doubt()
        self._claimer.look()
