"""Transactions of callers that may have committed.

No event of a connection proves a commit, so it only announces: the entries are looked up on
another connection, at once and then ever more rarely; those not found by then are left to the
sweep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from queue_core.claiming.claimer import Claimer
from queue_core.claiming.commit_looks import FIRST_LOOK_SECONDS, LOOKS
from queue_core.holding.holdings import Holdings, claims_of
from queue_core.model.transit import Transit, those_of
from queue_core.posting.commit_rate import CommitRate
from queue_core.posting.posted_hand_over import PostedHandOver
from queue_core.runtime.clock import monotonic
from queue_core.runtime.lock import Lock

LATE_LOOK_SECONDS = 1.0
"""The interval of later looks, until a lease is over.

A COMMIT may wait for a standby, or for deferred constraints.
"""
LOOK_BATCH = 1_000
"""Ids that one statement looks for."""


@dataclass(eq=False)
class _Announced:
    ids: list[int]
    until: float
    looks: int = 0
    next_look: float = 0.0


class AnnouncedCommits:
    """The inserts of callers' transactions in this process, until they are found or given up."""

    def __init__(self, holdings: Holdings, hand_over: PostedHandOver, claimer: Claimer) -> None:
        self._holdings = holdings
        self._hand_over = hand_over
        self._claimer = claimer
        self.looked_for = dict[_Announced, None]()
        self.rate = CommitRate()
        self.gathering = False
        """Whether the claim loop looks again soon, without being woken."""
        self._lock = Lock()

    def add(self, ids: list[int]) -> None:
        """Note that a transaction that inserted `ids` has ended, or is about to.

        Without ids, it inserted entries that are to be claimed.
        """
        holdings = self._holdings
        until = holdings.clock.monotonic() + holdings.config.node.lease_seconds
        with self._lock:
            self.looked_for[_Announced(ids, until)] = None
        self.rate.count(monotonic())
        if not self.gathering:
            self._claimer.turn_soon()

    def expect(self, ids: list[int]) -> Callable[[], None]:
        """Look for `ids` from a poll interval on, before anybody has announced their commit.

        Returns what announces it. Django calls no more hooks of a transaction that has committed
        once one of them has raised.
        """
        holdings = self._holdings
        now = holdings.clock.monotonic()
        expected = _Announced(
            list(ids),
            until=now + holdings.config.node.lease_seconds,
            looks=LOOKS,
            next_look=now + holdings.config.poll_interval_seconds,
        )
        with self._lock:
            self.looked_for[expected] = None

        def announce() -> None:
            with self._lock:
                self.looked_for.pop(expected, None)
            self.add(list(ids))

        return announce

    def ids(self) -> set[int]:
        """All that is looked for."""
        with self._lock:
            return {record_id for announced in self.looked_for for record_id in announced.ids}

    def next_look(self) -> float | None:
        """The monotonic time at which something is to be looked up."""
        with self._lock:
            return min((announced.next_look for announced in self.looked_for), default=None)

    def look_up(self) -> None:
        """Look for entries that are to be looked up now, and hand over the committed ones.

        Entries for which the ledger has no room are left to the sweep.
        """
        now = self._holdings.clock.monotonic()
        with self._lock:
            announced_so_far = list(self.looked_for)
        looking = [announced for announced in announced_so_far if announced.next_look <= now]
        if not looking:
            return
        ledger = self._holdings.ledger
        sought = [record_id for announced in looking for record_id in announced.ids]
        # The sweep was faster with those that are held.
        ids = [record_id for record_id in sought if record_id not in ledger]
        found = set(sought).difference(ids)
        for start in range(0, len(ids), LOOK_BATCH):
            found |= self._start_committed(ids[start : start + LOOK_BATCH])
        for announced in looking:
            self._count_look(announced, found, now)
        with self._lock:
            self.looked_for = self._still_sought()

    def _still_sought(self) -> dict[_Announced, None]:
        return {announced: None for announced in self.looked_for if announced.next_look < inf}

    def _start_committed(self, ids: list[int]) -> set[int]:
        """Start those of `ids` that have committed, and return them."""
        holdings, ledger = self._holdings, self._holdings.ledger
        epoch = holdings.epoch
        entries = holdings.store.owned(ids, holdings.name)
        # A claim count past the first: the sweep was faster.
        fresh = [
            entry for entry in entries if entry.claim_count == 1 and entry.record_id not in ledger
        ]
        held = fresh[: max(0, ledger.room)]
        transit = Transit()
        try:
            # An id that a rolled-back transaction had announced may be another's entry now, just
            # claimed in another thread.
            ledger.add(claims_of(held), transit=transit)
            self._hand_over.submit(those_of(held, transit.held), epoch, transit)
        except BaseException:
            self._hand_over.leave(transit)
            raise
        if len(held) < len(fresh):
            self._holdings.doubt()
        return {entry.record_id for entry in entries}

    def _count_look(self, announced: _Announced, found: set[int], now: float) -> None:
        inserted = bool(announced.ids)
        if inserted:
            announced.ids = [record_id for record_id in announced.ids if record_id not in found]
            announced.looks += 1
        else:
            self._claimer.wake()
            announced.looks += 2
        if inserted and not announced.ids:
            announced.next_look = inf
        elif announced.looks <= LOOKS:
            announced.next_look = now + FIRST_LOOK_SECONDS * 2 ** (announced.looks - 1)
        elif inserted and now < announced.until:
            # At the same times for all: one statement looks for all posts rolled back lately.
            announced.next_look = (now // LATE_LOOK_SECONDS + 1) * LATE_LOOK_SECONDS
        else:
            announced.next_look = inf
