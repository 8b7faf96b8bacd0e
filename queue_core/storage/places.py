"""The places of limited queues: claims take them, in their own transaction, under one lock.

A place is a claim that stands: its entry is IN_PROCESSING with the same claim count. Nobody gives
one back, and none expires: an entry that ends, fails, or is reaped has no claim, and so no place.

The transaction that claims locks the row of the limit, counts the places, and sets aside the
entries for which there are none. So no more run than the limit says, even if a node dies at any
moment. The row is read under the lock: a changed limit holds for the next claim. Where a limit
seemed far from full, and was not, a second transaction does so: no entry starts before it has a
place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection

from queue_core.model.entry import Entry, claimed
from queue_core.model.lanes import Lane, is_limited
from queue_core.model.limit import Limit
from queue_core.model.rate import Rate
from queue_core.storage.key_places import KeyPlaces
from queue_core.storage.reserves import Reserve, Reserves
from queue_core.storage.store import FIRST_DATE, Store
from sql.statements.base import LARGEST_COUNT
from sql.statements.claims import Claim
from sql.statements.places import Bunch, Seats, Terms

MOST_BUNCHES = 100
"""Rows of places that a claim reads, before they are made fewer."""


class Claimed(NamedTuple):
    """The result of a claim.

    Attributes:
        entries: Those that may run.
        found: The number of entries found, those that were set aside included.
        placed: The ids of entries that took places, by the lane of their limit.
        refused: The lanes of limits that had no more places. When they have one again, as far as
            that is known.
        keys_go_on: When the rate of a limit key allows the next start, if some wait for it.
        reserves: What it has reserved ahead of the next claims, by the lane of their limit.
    """

    entries: list[Entry]
    found: int
    placed: dict[Lane, list[int]] = {}  # noqa: RUF012 -- never changed
    refused: dict[Lane, datetime | None] = {}  # noqa: RUF012 -- never changed
    keys_go_on: datetime | None = None
    reserves: dict[Lane, Reserve | None] = {}  # noqa: RUF012 -- never changed


class Room(msgspec.Struct, kw_only=True):
    """The free places of one limit, which is locked."""

    free: int = LARGEST_COUNT
    rate: Rate | None = None
    arrival: datetime = FIRST_DATE
    now: datetime = FIRST_DATE
    may_reserve: int = 0
    """Places that the owner may have ahead of its claims, those of its claims among them."""
    mine: int = 0
    """Places of the owner's claims."""
    reserve: Reserve | None = None
    """What it has reserved."""

    @property
    def until(self) -> datetime | None:
        """When its rate allows the next start; None if it does not wait for that."""
        if self.rate is None or self.rate.free(self.arrival, self.now):
            return None
        return self.rate.next(self.arrival, self.now)


class Places:
    """The places of one main table's limited queues, as one bus or service takes them."""

    def __init__(
        self,
        store: Store,
        idle_threads: Callable[[], int],
        held: Callable[[Lane], set[int]],
        lane_of_pause: Callable[[str], Lane | None],
    ) -> None:
        """`held` tells the ids of held entries that have places of a limit.

        `lane_of_pause` tells the lane of a paused queue.
        """
        self.lane_of_pause = lane_of_pause
        self._store = store
        self._idle_threads = idle_threads
        self.keys = KeyPlaces(store, idle_threads)
        self.reserves = Reserves(held)
        self.lanes = dict[str, Lane]()
        """Of the queues that are limited, as the last look has found; empty, as mostly."""
        self.limit_any = False
        """Whether there are limits, as far as is known. It is asked for each call of a handler."""
        self.nodes = 1
        """The number of live nodes that share the places."""
        self._known = dict[Lane, Limit]()
        self._may_reserve_at = dict[Lane, float]()
        """When a limit may be reserved again (monotonic), after a reserve did not last."""
        self._tight = set[Lane]()
        """Limits that have a rate, or had no places for sure when they were last taken at once."""

    def learn(self, limits: Iterable[Limit]) -> None:
        """These are the limits now."""
        limits = [*limits]
        known, self._known = self._known, {limit.lane: limit for limit in limits}
        self.reserves.forget([lane for lane in known if known[lane] != self._known.get(lane)])
        self.lanes = {limit.queue_name: limit.lane for limit in limits if limit.limits_queue}
        self.keys.learn(limits)
        rated = {limit.lane for limit in limits if limit.limits_queue and limit.rate is not None}
        self._tight = rated | self._tight.intersection(self.lanes.values())
        self.limit_any = bool(self.lanes or self.keys.queues)

    def concern(self, entries: Iterable[Entry]) -> bool:
        """Whether some of the entries need places."""
        return self.limit_any and any(
            entry.queue_name in self.lanes or self.keys.concern(entry) for entry in entries
        )

    def roomy(self, lane: Lane) -> bool:
        """Whether entries claimed from `lane` are likely to find places at once."""
        # Of a single limit, there are reserves.
        at_once = self._store.statements.capabilities.seats_at_once and len(self.lanes) > 1
        return at_once and not (is_limited(lane) or self._tight or self.keys.queues)

    def claim(self, connection: Connection, claim: Claim) -> Claimed | None:
        """Claim entries together with places, if there are places for all of them for sure.

        None if not: nothing is claimed then.
        """
        statements = self._store.statements
        rows = statements.open_claim(connection, claim)
        if rows is None:
            return None
        entries = [claimed(row, claim.owner, claim.until) for row in rows]
        placed = dict[Lane, list[int]]()
        for lane, those in self.by_lane(entries):
            seats = Seats(
                lane,
                claim.owner,
                [entry.claim for entry in those],
                self._store.config.handler_threads,
                self.nodes,
                MOST_BUNCHES,
            )
            if not statements.seat(connection, seats):
                self._tight.add(lane)
                statements.close_claim(connection, keep=False)
                return None
            placed[lane] = [entry.record_id for entry in those]
        statements.close_claim(connection, keep=True)
        return Claimed(entries, len(entries), placed)

    def reserved(self, claim: Claim, limit: int, entries: list[Entry]) -> Claimed:
        """What a `claim` by a reserve has taken, which was to take up to `limit` entries.

        If it took nothing, or as many as the reserve has places for, the next one goes without it:
        it may have ended, and entries of other queues need no places of it.
        """
        found = len(entries)
        if not found or found == claim.limit < limit:
            lane = self.reserves.ended(claim)
            if found and lane is not None:
                self._without_reserve(lane)
            found = limit
        placed = {
            lane: [entry.record_id for entry in those] for lane, those in self.by_lane(entries)
        }
        return Claimed(entries, found, placed)

    def register(self, connection: Connection, owner: str, entries: Sequence[Entry]) -> None:
        """Count entries that `owner` ran before it knew of their limit, past it if need be."""
        due_by = self._store.claims_due_by
        for lane, mine in self.by_lane(entries):
            statements = self._store.statements
            statements.terms(connection, lane=lane)
            if owner in statements.lock_reserves(connection, lane=lane):
                statements.list_own(connection, lane=lane, owner=owner, due_by=due_by)
            held = set(statements.held_places(connection, lane=lane, due_by=due_by).get(owner, ()))
            claims = [entry.claim for entry in mine if entry.claim not in held]
            if claims:
                statements.take_places(connection, lane=lane, owner=owner, claims=claims)
        keyed = self.keys.by_lane(entries)
        if keyed:
            self.keys.register(connection, owner, keyed)

    def by_lane(self, entries: Iterable[Entry]) -> list[tuple[Lane, list[Entry]]]:
        """The entries of limited queues, by the lane of their limit: in order, as it is locked."""
        found = defaultdict[Lane, list[Entry]](list)
        for entry in entries:
            lane = self.lanes.get(entry.queue_name)
            if lane is not None:
                found[lane].append(entry)
        return sorted(found.items())

    def room(
        self,
        connection: Connection,
        lane: Lane,
        owner: str,
        wanted: int,
        found: Container[int] = (),
    ) -> Room:
        """Lock a limit, and count its free places for `owner`: at least `wanted`, if there are.

        Entries that its claim has `found` have no places yet.
        """
        statements = self._store.statements
        limit = statements.terms(connection, lane=lane)
        if limit is None:  # it has just been removed
            return Room()
        bunches, due_by = statements.bunches(connection, lane=lane), self._store.claims_due_by
        reserved = any(bunch.reserved and bunch.owner == owner for bunch in bunches)
        if reserved or self.reserves.unsure(lane):
            if not reserved:
                self._without_reserve(lane)  # another node has needed its places
            mine = len(
                statements.list_own(
                    connection, lane=lane, owner=owner, due_by=due_by, besides=found
                )
            )
            bunches = [bunch for bunch in bunches if bunch.owner != owner] + [Bunch(owner, mine)]
        free = self._free(limit, bunches, owner)
        if free < wanted or len(bunches) > MOST_BUNCHES:
            bunches = statements.list_all(connection, lane=lane, due_by=due_by)
            free = self._free(limit, bunches, owner)
        rate = Rate.of(limit.rate, limit.per_microseconds, limit.burst)
        if rate is None:
            if free >= wanted:
                self._tight.discard(lane)
            mine = sum(bunch.places for bunch in bunches if bunch.owner == owner)
            return Room(
                free=max(0, free), may_reserve=self._reserve(limit, bunches, owner), mine=mine
            )
        now, arrival = self._store.read_time(connection), limit.arrival_date or FIRST_DATE
        # A claimed entry counts as started, so it has to start now.
        free = min(free, rate.free(arrival, now), self._idle_threads())
        return Room(free=max(0, free), rate=rate, arrival=arrival, now=now)

    def take(
        self,
        connection: Connection,
        lane: Lane,
        room: Room,
        *,
        owner: str,
        entries: Sequence[Entry],
        found: Collection[int],
    ) -> None:
        """Let entries have places, of which there are enough; `found` are all of the claim."""
        statements = self._store.statements
        room.mine += len(entries)
        # Where more of it is in use, the next claims would soon look for other places anyway.
        lasts = 2 * room.mine <= room.may_reserve
        if lasts and self._may_reserve_at.get(lane, 0.0) <= self._store.clock.monotonic():
            besides = {*found}.difference(entry.record_id for entry in entries)
            room.reserve = self.reserves.take(
                statements,
                connection,
                lane,
                owner=owner,
                entries=entries,
                places=room.may_reserve,
                due_by=self._store.claims_due_by,
                besides=besides,
            )
        else:
            claims = [entry.claim for entry in entries]
            statements.take_places(connection, lane=lane, owner=owner, claims=claims)
        if room.rate is not None:
            arrival = room.rate.after(room.arrival, room.now, len(entries))
            self._store.statements.arrived(connection, lane=lane, arrival_date=arrival)
            room.arrival = arrival
        room.free -= len(entries)

    def set_aside(
        self, connection: Connection, lane: Lane, owner: str, entries: Sequence[Entry]
    ) -> None:
        """Give up claims of entries that wait in `lane`, suspects too."""
        claims = [entry.claim for entry in entries]
        self._store.statements.release(
            connection, owner=owner, lane=lane, suspect_lane=lane, claims=claims
        )

    def _without_reserve(self, lane: Lane) -> None:
        """A reserve did not last: each reads this node's lane, so none follows soon."""
        lease_seconds = self._store.config.node.lease_seconds
        self._may_reserve_at[lane] = self._store.clock.monotonic() + lease_seconds

    def _free(self, limit: Terms, bunches: Sequence[Bunch], owner: str) -> int:
        taken = sum(bunch.places for bunch in bunches)
        mine = sum(bunch.places for bunch in bunches if bunch.owner == owner)
        free = LARGEST_COUNT
        if limit.concurrency is not None:
            # An entry that a node holds and can't run yet has a place that another could use.
            share = max(self._store.config.handler_threads, limit.concurrency // self.nodes)
            free = min(limit.concurrency - taken, share - mine)
        return free if limit.per_node is None else min(free, limit.per_node - mine)

    def _reserve(self, limit: Terms, bunches: Sequence[Bunch], owner: str) -> int:
        """The places that `owner` may have ahead: no more than its share, and than others leave."""
        # A claim of several queues would have to ask for the reserve of each.
        if len(self.lanes) > 1 or self.keys.queues:
            return 0
        places = LARGEST_COUNT if limit.per_node is None else limit.per_node
        if limit.concurrency is not None:
            taken = sum(bunch.places for bunch in bunches if bunch.owner != owner)
            places = min(places, limit.concurrency // self.nodes, limit.concurrency - taken)
        return max(0, places)
