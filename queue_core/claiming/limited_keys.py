"""Looks at limit keys: at those whose rate allows the next start, and at the others now and then.

The end of a claim lets the next entry of its key go. A node of an older version can't, nor one that
has died. A caller's transaction may remove the entry that was let go, and a changed limit may let
more go. So each node goes through all keys now and then.
"""

from __future__ import annotations

import math
from functools import partial

from queue_core.claiming.claimer import Claimer
from queue_core.claiming.commit_looks import CommitLooks
from queue_core.claiming.hint_sender import HintSender
from queue_core.holding.holdings import Holdings
from queue_core.storage.key_places import PAGE

LOOK_SECONDS = 0.9
"""Seconds between two looks at the dates that other nodes have noted.

A date that a dead node has noted is known to others within a second.
"""
BUSY_SECONDS = 0.05
"""Seconds to the next look while no thread is idle: an entry let go then would have to wait.

No benchmark compares it with others.
"""
ROUNDS_A_LEASE = 2
"""Rounds through all keys in the time of a lease, for those that nobody has told of."""


class LimitedKeys:
    """The limit keys of one main table, as one node sees them."""

    def __init__(self, holdings: Holdings, claimer: Claimer, hints: HintSender) -> None:
        self._holdings = holdings
        self._keys = holdings.places.keys
        self._claimer = claimer
        self._hints = hints
        self._look_at = 0.0
        self._rounds = CommitLooks(holdings.config.node.lease_seconds / ROUNDS_A_LEASE)
        self._begin_anew, self._after = True, ""
        """Whether a round is to begin, and the lane of the last key that this round has come to."""
        self._has_changed = self._changed = True
        """Whether a limit has changed since this round began, and whether this is for a change."""

    @property
    def next_look(self) -> float:
        """The monotonic time of the next turn."""
        return min(self._look_at, self._rounds.next_look, self._keys.goes_on_at)

    def changed(self) -> None:
        """A limit of keys has changed: go through all of them."""
        self._has_changed = True
        self._rounds.look_now()

    def announce(self) -> None:
        """A caller's transaction that may have removed entries has ended, or is about to."""
        if self._keys.queues:
            self._begin_anew = True
            self._rounds.announce()

    def turn(self, now: float) -> None:
        """Look, if it is time to."""
        if self._rounds.begin(now):
            self._go_round(now)
        if now >= min(self._look_at, self._keys.goes_on_at):
            self._look(now)

    def _go_round(self, now: float) -> None:
        # Other threads only raise these two, and for the next turn: a page is read after that.
        if self._begin_anew:
            self._begin_anew, self._after = False, ""
        if self._has_changed:
            self._has_changed, self._changed, self._after = False, True, ""
        lanes, last = self._holdings.store.database.fetch(
            partial(self._keys.overlooked, after=self._after, changed=self._changed)
        )
        self._let_go(lanes)
        self._after = last or ""
        if last is None:
            self._changed = False
        self._rounds.end(now, found=bool(lanes), more=last is not None)

    def _look(self, now: float) -> None:
        keys, store = self._keys, self._holdings.store
        self._look_at = now + LOOK_SECONDS
        if not keys.queues and keys.goes_on_at == math.inf:
            return
        keys.goes_on_at = math.inf
        # Entries that are let go have to start now.
        limit = min(PAGE, keys.idle_threads())
        if limit <= 0:
            keys.goes_on_at = now + BUSY_SECONDS
            return
        date = self._holdings.clock.now()
        self._let_go(
            store.database.fetch(
                lambda inner: store.statements.keys_to_look_at(inner, now=date, limit=limit)
            )
        )
        upcoming = store.database.fetch(store.statements.next_look_at_keys)
        if upcoming is not None:
            keys.expect(upcoming)

    def _let_go(self, lanes: list[str]) -> None:
        if lanes:
            date = self._holdings.store.database.write(partial(self._keys.look, lanes=lanes))
            if date is not None:
                self._keys.expect(date)
            self._claimer.wake()
            self._hints.tell()
