"""Claims what is due, as far as the pool has room, and hands it over.

Entries come from the lanes that this node may claim from, one statement each; from posts of this process, which are
born claimed; and from callers' transactions that have committed. All of them go through the ledger.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from operator import attrgetter
from time import sleep

from queue_core.holding.hand_over import Handing, Submit, those_of
from queue_core.holding.holdings import Claims, claims_of
from queue_core.metrics import Metrics
from queue_core.model.entry import ANY_NODE, PARKED, SUSPECT, Entry
from queue_core.runtime.lock import Lock
from queue_core.storage.store import FIRST_DATE, Taking

_EFFECTIVE_DATE = attrgetter("effective_date")

LOAD_BATCH = 1_000
BATCHES = 4
"""Full claims that the pool holds: with two, claims waited for the commits of outcomes (a fifth to a third slower)."""
LOOK_SECONDS, LOOK_SHARE = 0.05, 10
"""Between looks for other work while there is a backlog that is being claimed, at least; or so many times a look's own duration."""
AHEAD = timedelta(milliseconds=5)
"""How long before its date an entry is claimed, which takes 2 to 5 ms, to start when the date comes."""
AFTER_DATE_SECONDS = 0.002
"""From a date to the look for the next."""
LONGEST_LOOK_SECONDS = 1.0
"""The same at most: until then, what was committed late may wait behind the backlog."""
LATE = timedelta(seconds=1)
"""How much earlier than the last that was claimed an entry may be dated, and be found by a claim without a look."""
SHORTEST_POLL_SECONDS = 0.01
FAIR_SHARE = 2
"""Entries per handler thread that a node holds of those which any node may run; more if it runs more in no time."""


class Claimer:
    """See the module.

    `submit` gives the pool entries, and the lease they were claimed under; `wake` wakes the loop; `unsure` is called
    when a claim has failed, for its COMMIT may have taken effect.
    """

    def __init__(
        self,
        claims: Claims,
        metrics: Metrics,
        *,
        submit: Submit,
        wake: Callable[[], None],
        unsure: Callable[[], None],
    ) -> None:
        self._claims = claims
        self._config = claims.config
        self._clock = claims.clock
        self._ledger = claims.ledger
        self._store = claims.store
        self.metrics = metrics
        self._submit = submit
        self._wake_loop = wake
        self._unsure = unsure
        self._along_from, self._along_failed = "", False
        """The lane that the last claim along with outcomes was from, and whether one has failed since the loop's turn."""
        self._under_way, self._booking = dict[int, int](), Lock()
        """By thread, how many entries the claim that is under way there may take."""
        self._goes_along = claims.store.database.dialect.capabilities.one_writer
        self._early = deque[tuple[Entry, int]]()
        """What was claimed ahead of its date, with the lease."""
        self._next_due = dict[str, datetime]()
        """By lane, when the next of its entries is due, as far as is known."""
        self._sought_from = dict[str, datetime]()
        """By lane, the date from which claims seek: what they have taken stays in the index while an old snapshot lasts."""
        self._look_at = self._looked_at = 0.0
        self._look_pause = LOOK_SECONDS
        self._poll_seconds = self._config.poll_interval_seconds
        # Where no hint comes from others, a look that found something of theirs is followed by others soon.
        self._adapts = not self._store.database.dialect.capabilities.hears_commits
        self.finds_parked = False
        """Whether the last look has found parked entries that are due."""
        self._unemptied = set[str]()
        """Lanes in which something was due, and whose last claim was full."""
        self._hinted = set[str]()
        """Lanes of which others say that they hold something new."""

    # -- wake-ups -----------------------------------------------------------------------------------------------

    def wake(self, since: float = math.inf) -> None:
        """Entries may have been committed that can be claimed, now or at a date not known here: look.

        Unless a look has begun after `since` (monotonic), when they were committed already.
        """
        if self._looked_at > since:
            return
        self._look_at = min(self._look_at, self._looked_at + self._look_pause if self._unemptied else 0.0)
        self._wake_loop()

    def look(self) -> None:
        """Look in the next turn, whatever is known."""
        self._look_at = 0.0
        self._wake_loop()

    def hint(self, lane: str) -> None:
        """Another process has committed entries in `lane`, due now more often than not: claim there next, without a look."""
        self._hinted.add(lane)

    def expect(self, date: datetime) -> None:
        """An entry of this node's lane is committed and due at `date` (UTC)."""
        if date <= self._clock.now():
            self.wake()
        elif self._comes_first(self._claims.waiting_lane, date):
            self._wake_loop()

    def freed(self) -> None:
        """Less is held than before: claim on where the last claims left something."""
        # Read after the ledger was freed, as the claim loop marks a lane before it reads the room.
        if self._unemptied or self._ledger.waiting:
            self._wake_loop()

    def turn(self, record_id: int, *, come: bool) -> None:
        """A held entry has begun to wait for a serial handler's turn, or its turn has come."""
        if come:
            self._ledger.take_up(record_id)
        else:
            self._ledger.set_aside(record_id)
            self.freed()

    # -- from this process ------------------------------------------------------------------------------------

    def forget(self, besides: Collection[tuple[int, int]] = ()) -> None:
        """Hold nothing that was claimed before the node was joined, `besides` some: it was given back, or is the reaper's."""
        self._ledger.keep(besides)
        self._early.clear()

    def load_waiting(self) -> None:
        """Read the payloads of entries that waited by id, as far as there is room."""
        while self._ledger.waiting and (room := self.room()) > 0:
            ids = self._ledger.first_waiting(min(room, LOAD_BATCH))
            lease = self._claims.lease
            entries = self._store.owned(ids, self._claims.name)
            with self._handing((record_id, 1) for record_id in ids) as handing:
                handing.ids.extend(ids)
                handing.ready = sorted(entries, key=lambda entry: entry.record_id)
                self._ledger.next_waiting(len(ids))
                self._ledger.discard(set(ids) - {entry.record_id for entry in entries})
                self._submit(handing.ready, lease, handing.taken)

    # -- from the lanes -----------------------------------------------------------------------------------------

    def claim_due(self) -> None:
        """Claim once from each lane that may hold something due, as far as there is room."""
        if self._clock.monotonic() >= self._look_at:
            self._look()
        self.claim_known()
        if self._unemptied:
            earliest, latest = self._looked_at + self._look_pause, self._looked_at + LONGEST_LOOK_SECONDS
            self._look_at = min(max(self._look_at, earliest), latest)

    def claim_known(self) -> None:
        """As `claim_due`, without a look: where something is known to be due."""
        self._hear()
        for lane in self._open_lanes():
            with self._booked(lane) as limit:
                if limit:
                    self._claim(lane, limit)

    def _open_lanes(self) -> Iterator[str]:
        """Lanes that the claim loop may claim from now: suspects last, for one may kill this process."""
        for lane in (SUSPECT,) if self._left_to_outcomes else (self._claims.name, ANY_NODE, SUSPECT):
            if lane in self._unemptied and self._limit(lane) > 0:
                yield lane

    @contextmanager
    def _booked(self, lane: str, ending: Collection[int] = ()) -> Iterator[int]:
        """How many entries may be claimed from `lane` in the block: what other threads claim meanwhile is left out."""
        thread = threading.get_ident()
        try:
            with self._booking:
                limit = self._under_way[thread] = self._limit(lane, ending)
            yield limit
        finally:
            self._under_way.pop(thread, None)

    # -- along with outcomes ------------------------------------------------------------------------------------

    def in_turn(self) -> None:
        """The claim loop has its turn."""
        self._along_failed = False
        self._submit_early()  # before all that needs the database

    @contextmanager
    def along(self, ending: Collection[int]) -> Iterator[Taking | None]:
        """A claim for the transaction that writes the outcomes of these ids, where that costs less than one more."""
        lane, lease = self._lane_along(ending), self._claims.lease
        if lane is None:
            yield None
            return
        self._along_from = lane
        try:
            with self._claims.claiming_along() as mine, self._booked(lane, ending) as limit:
                taking = None
                if mine and limit:
                    taking = self._store.taking(lane, self._claims.name, limit, self._since(lane), AHEAD)
                yield taking
                if taking is not None and taking.entries is not None:
                    self._has_claimed(lane, limit, taking.entries, lease)
        except BaseException:
            self._along_failed = True  # if it was the claim that failed, the next outcomes go without one
            self._unsure()
            raise
        finally:
            self._wake_loop()

    def _lane_along(self, ending: Collection[int]) -> str | None:
        """Where to claim along with outcomes, if anywhere."""
        if self._goes_along and self._claims.running and not self._along_failed:
            # In turns: what waits in one lane must not keep the other waiting.
            for lane in sorted((self._claims.name, ANY_NODE), key=self._along_from.__eq__):
                if lane in self._unemptied and self._limit(lane, ending) > 0:
                    return lane
        return None

    @property
    def _left_to_outcomes(self) -> bool:
        """Whether the claim loop leaves claims to the outcomes that come soon, for its threads have enough until then."""
        most = self._config.max_entries_claimed
        enough = self._ledger.active > self._config.handler_threads + most
        return self._goes_along and enough and self._claims.pace >= most

    # -- how much -----------------------------------------------------------------------------------------------

    def pause(self) -> float:
        """Seconds until something is to be done, as far as is known now."""
        pause = min(self._config.poll_interval_seconds, self._look_at - self._clock.monotonic())
        dates = [entry.effective_date for entry, _ in list(self._early)]
        dates += [date - AHEAD for date in list(self._next_due.values())]
        if dates:
            pause = min(pause, (min(dates) - self._clock.now()).total_seconds())
        # Not `any`: the lane of any node has an empty name.
        if (self._ledger.waiting and self.room() > 0) or [*self._open_lanes()]:
            return 0.0
        return max(0.0, pause)

    @property
    def _capacity(self) -> int:
        """How many entries the pool holds: its threads are kept busy while claims and outcomes are under way."""
        threads, most = self._config.handler_threads, self._config.max_entries_claimed
        return min(threads + BATCHES * most, max(threads, self._config.queue_capacity))

    def room(self) -> int:
        """How many entries the pool takes now."""
        return self._capacity - self._ledger.active

    def _limit(self, lane: str, ending: Collection[int] = ()) -> int:
        """How many entries of a lane may be claimed now, when those of these ids are about to end."""
        if lane == SUSPECT:
            return 0 if self._ledger.held_from(SUSPECT) else 1
        most = self._config.max_entries_claimed
        if lane == ANY_NODE:
            # What waits in the node's own lane must not keep it from its share.
            share = max(FAIR_SHARE * self._config.handler_threads, self._claims.pace)
            capacity = min(share, self._capacity)
            room = capacity - self._ledger.active_from(ANY_NODE, besides=ending)
        else:
            capacity, room = self._capacity, self.room() + len(ending)
        mine = threading.get_ident()
        room -= sum(limit for thread, limit in list(self._under_way.items()) if thread != mine)
        # Each claim is a commit: few large ones. Where half of a share is active, no thread idles meanwhile.
        return min(most, room) if room >= min(most, capacity // 2) else 0

    def _claim(self, lane: str, limit: int) -> None:
        """Claim up to `limit` entries."""
        lease = self._claims.lease
        try:
            with self.metrics.statement("claim"):
                entries = self._store.claim(lane, self._claims.name, limit, self._since(lane), AHEAD)
            self._has_claimed(lane, limit, entries, lease)
        except BaseException:
            self._unsure()
            raise

    def _has_claimed(self, lane: str, limit: int, entries: Sequence[Entry], lease: int) -> None:
        if entries:
            claims = claims_of(entries)
            with self._handing(claims) as handing:
                self._ledger.add(claims, lane, handing.ids)
                due = bisect_right(entries, self._clock.now(), key=_EFFECTIVE_DATE)
                handing.ready = those_of(entries[:due], handing.ids)
                self._submit(handing.ready, lease, handing.taken)
                if len(entries) < limit:
                    # Python runs one thread, and this one has nothing else to claim: let a handler's run.
                    sleep(0)
                self._early.extend((entry, lease) for entry in those_of(entries[due:], handing.ids))
            self.metrics.claimed(entries)
            last = entries[-1].effective_date
            # What comes next may be due before what was claimed ahead.
            self._sought_from[lane] = last if due == limit else max(last, FIRST_DATE + LATE) - LATE
        if len(entries) < limit:
            self._unemptied.discard(lane)

    @contextmanager
    def _handing(self, claims: Iterable[tuple[int, int]]) -> Iterator[Handing]:
        """For a block that hands over some of `claims`. After an exception, those that nobody has are for the sweep."""
        handing = Handing()
        try:
            yield handing
        except BaseException:
            left = set(handing.left()).difference(
                (entry.record_id for entry, _ in self._early), self._ledger.all_waiting()
            )
            self._ledger.give_up(claim for claim in claims if claim[0] in left)
            self._unsure()
            raise

    def _submit_early(self) -> None:
        """Hand over what was claimed ahead and has come."""
        now = self._clock.now()
        with self._handing([entry.claim for entry, _ in self._early]) as handing:
            handing.ids.extend(entry.record_id for entry, _ in self._early)
            self._submit_until(now, handing)

    def _submit_until(self, now: datetime, handing: Handing) -> None:
        for _ in range(len(self._early)):
            entry, lease = self._early.popleft()
            if entry.effective_date <= now:
                handing.ready.append(entry)
                self._submit([entry], lease, handing.taken)
            else:
                self._early.append((entry, lease))

    def _since(self, lane: str) -> datetime:
        # Suspects are few, and each may be older than the one before.
        return FIRST_DATE if lane == SUSPECT else self._sought_from.get(lane, FIRST_DATE)

    def _comes_first(self, lane: str, date: datetime) -> bool:
        """Keep `date` if it is the earliest known of the lane; whether it is."""
        first = lane not in self._next_due or date < self._next_due[lane]
        if first:
            self._next_due[lane] = date
        return first

    def _hear(self) -> None:
        """Lanes of which others have told, and those whose next date has come, are claimed from without a look."""
        told = set[str]()
        while self._hinted:
            told.add(self._hinted.pop())
        if told:
            # Soon, for some of what others told of may be due later.
            self._look_at = min(self._look_at, self._looked_at + LOOK_SECONDS)
        if passed := self._passed():
            # What comes next there is not known; but whose date has come goes first, and Python runs one thread.
            comes_in = max(0.0, (max(passed.values()) - self._clock.now()).total_seconds())
            self._look_at = min(self._look_at, self._clock.monotonic() + comes_in + AFTER_DATE_SECONDS)
        self._unemptied |= told | passed.keys()

    def _passed(self) -> dict[str, datetime]:
        """The next dates, by lane, that have come or nearly so; they are no longer known then."""
        nearly = self._clock.now() + AHEAD
        passed = {lane: date for lane, date in list(self._next_due.items()) if date <= nearly}
        for lane in passed:
            del self._next_due[lane]
        return passed

    def _look(self) -> None:
        """Learn where something is due, and the next date: a read, while a claim that finds nothing is a write."""
        self._looked_at = self._clock.monotonic()
        self._look_at = self._looked_at + self._poll_seconds
        self._passed()
        try:
            due, later = self._store.prospects(self._claims.name)
        except BaseException:
            self._look_at = self._looked_at  # what was to be learnt still is
            raise
        # Over the dead rows that an old snapshot keeps it takes long, and nothing is claimed meanwhile.
        took = self._clock.monotonic() - self._looked_at
        self._look_pause = min(max(LOOK_SECONDS, LOOK_SHARE * took), LONGEST_LOOK_SECONDS)
        self.finds_parked = PARKED in due
        self._unemptied |= due.keys() - {PARKED}
        self._sought_from |= due
        if self._adapts:
            busy = ANY_NODE in due
            self._poll_seconds = min(
                SHORTEST_POLL_SECONDS if busy else 2 * self._poll_seconds, self._config.poll_interval_seconds
            )
            self._look_at = min(self._look_at, self._looked_at + self._poll_seconds)
        for lane, date in later.items():
            self._comes_first(lane, date)
