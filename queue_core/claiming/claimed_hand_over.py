"""Claimed entries on their way to the pool: the due ones at once, others at their date.

An exception that comes anywhere from outside loses none: an entry that nobody has is for the sweep.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from operator import attrgetter
from time import sleep

from queue_core.holding.holdings import Holdings, claims_of
from queue_core.model.entry import Entry
from queue_core.model.lanes import Lane
from queue_core.model.transit import Transit, those_of
from queue_core.running.pools import Pools

_EFFECTIVE_DATE = attrgetter("effective_date")

LOAD_BATCH = 1_000
"""Payloads that are read by one statement, of entries that waited by id.

No benchmark compares it with others.
"""


class ClaimedHandOver:
    """Hands over the claimed entries of one bus or service."""

    def __init__(self, holdings: Holdings, pools: Pools) -> None:
        self._holdings = holdings
        self._clock = holdings.clock
        self._ledger = holdings.ledger
        self._pools = pools
        self._early = deque[tuple[Entry, int]]()
        """Claimed entries that are not due yet, each with the node's epoch at its claim.

        A claim takes entries up to `AHEAD` before their date, so that the claim is done when the
        date comes. `submit_early` hands them over then.
        """

    @property
    def early_dates(self) -> list[datetime]:
        """The dates of those that are not due yet."""
        return [entry.effective_date for entry, _ in list(self._early)]

    def submit(self, entries: Sequence[Entry], lane: Lane, epoch: int, *, last: bool) -> int:
        """Hold the entries claimed from a lane, and hand over the due ones; returns their number.

        `last`: the thread that claimed has nothing else to claim.
        """
        claims = claims_of(entries)
        with self._transit(claims) as transit:
            self._ledger.add(claims, lane, transit)
            due = bisect_right(entries, self._clock.now(), key=_EFFECTIVE_DATE)
            transit.ready = those_of(entries[:due], transit.held)
            self._pools.submit(transit, epoch)
            if last:
                # Python runs one thread at a time: the pause lets a handler's run.
                sleep(0)
            self._early.extend((entry, epoch) for entry in those_of(entries[due:], transit.held))
        return due

    def submit_early(self) -> None:
        """Hand over the entries that were claimed ahead and have come."""
        now = self._clock.now()
        with self._transit([entry.claim for entry, _ in self._early]) as transit:
            transit.held.extend(entry.record_id for entry, _ in self._early)
            self._submit_until(now, transit)

    def _submit_until(self, now: datetime, transit: Transit) -> None:
        for _ in range(len(self._early)):
            entry, epoch = self._early.popleft()
            if entry.effective_date <= now:
                transit.ready.append(entry)
                self._pools.submit(transit, epoch)
            else:
                self._early.append((entry, epoch))

    def load(self, room: int) -> None:
        """Read the payloads of entries that waited by id, a batch of at most `room`."""
        ids = self._ledger.first_waiting(min(room, LOAD_BATCH))
        epoch = self._holdings.epoch
        entries = self._holdings.store.owned(ids, self._holdings.name)
        with self._transit((record_id, 1) for record_id in ids) as transit:
            transit.held.extend(ids)
            transit.ready = sorted(entries, key=lambda entry: entry.record_id)
            self._ledger.next_waiting(len(ids))
            self._ledger.discard(set(ids) - {entry.record_id for entry in entries})
            self._pools.submit(transit, epoch)

    def forget(self, besides: Collection[tuple[int, int]]) -> None:
        """Hold nothing `besides` some claims."""
        self._holdings.places.reserves.forget()
        self._ledger.keep(besides)
        self._early.clear()

    @contextmanager
    def _transit(self, claims: Iterable[tuple[int, int]]) -> Iterator[Transit]:
        """For a block that hands over some of `claims`.

        After an exception, those that nobody has are for the sweep.
        """
        transit = Transit()
        try:
            yield transit
        except BaseException:
            stranded = set(transit.stranded()).difference(
                (entry.record_id for entry, _ in self._early), self._ledger.all_waiting()
            )
            self._ledger.give_up(claim for claim in claims if claim[0] in stranded)
            self._holdings.doubt()  # its COMMIT may have taken effect
            raise
