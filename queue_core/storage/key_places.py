"""The places of limit keys: claims take them, under the locks of the keys' rows.

A place is a claim that stands, as one of a limited queue is: none is given back, and none expires.
An entry that was claimed and finds no place waits in the lane of its key.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Row

from queue_core.links.limit_keys import LIMIT_KEY_MARK, lane_of_key, limit_key_of
from queue_core.links.links import carries
from queue_core.model.entry import Entry
from queue_core.model.lanes import KEYED, Lane, limited_lane
from queue_core.model.limit import Limit
from queue_core.model.rate import Rate
from queue_core.storage.store import FIRST_DATE, Store
from sql.statements.base import LARGEST_COUNT
from sql.statements.limit_keys import KeyTerms

PAGE = 500
"""Keys that one transaction looks at, and entries of a key whose limit has ended."""
SHORTEST_SECONDS = 0.002
"""Between two looks at a rate."""

ByLane = Mapping[Lane, Sequence[Entry]]


class KeyRoom(msgspec.Struct, kw_only=True):
    """The free places of one limit key, whose row is locked."""

    row: Row[Any]
    free: int
    rate: Rate | None
    arrival: datetime
    """From when on the rate counts."""
    now: datetime
    waits: bool = False
    """Whether entries wait for its places."""

    def start(self, count: int) -> None:
        """So many have started."""
        self.free -= count
        if self.rate is not None and count:
            self.arrival = self.rate.after(self.arrival, self.now, count)

    def starts(self, idle: int) -> int:
        """The number that may start now, if that many threads are idle."""
        if self.rate is None:
            return self.free
        # A claimed entry counts as started, so it has to start now.
        return max(0, min(self.free, self.rate.free(self.arrival, self.now), idle))


class KeyPlaces:
    """The places of one main table's limit keys, as one bus or service takes them."""

    def __init__(self, store: Store, idle_threads: Callable[[], int]) -> None:
        self._store = store
        self.idle_threads = idle_threads
        self.queues = frozenset[str]()
        """Those whose keys are limited, as the last look has found; empty, as mostly."""
        self.goes_on_at = math.inf
        """When the rate of a key allows the next start (monotonic), as far as is known here."""

    def learn(self, limits: Iterable[Limit]) -> None:
        """These are the limits now."""
        self.queues = frozenset(limit.queue_name for limit in limits if limit.limits_keys)

    def expect(self, date: datetime) -> None:
        """The rate of a key allows the next start at `date` (UTC)."""
        clock = self._store.clock
        # The database's clock, which decides, may be behind ours.
        left = max((date - clock.now()).total_seconds(), SHORTEST_SECONDS)
        self.goes_on_at = min(self.goes_on_at, clock.monotonic() + left)

    def concern(self, entry: Entry) -> bool:
        """Whether an entry has a key that is limited."""
        return entry.queue_name in self.queues and carries(entry.headers, LIMIT_KEY_MARK)

    def by_lane(self, entries: Iterable[Entry]) -> dict[Lane, list[Entry]]:
        """The entries whose keys are limited, by the lane of their key."""
        found = defaultdict[Lane, list[Entry]](list)
        for entry in entries if self.queues else ():
            if self.concern(entry):
                found[lane_of_key(entry)].append(entry)
        return found

    # -- claims -----------------------------------------------------------------------------------

    def rooms(self, connection: Connection, by_lane: ByLane) -> dict[Lane, KeyRoom]:
        """Lock the keys of claimed entries, and count their free places."""
        statements = self._store.statements
        rows = statements.lock_keys(connection, lanes=by_lane)
        while new := by_lane.keys() - rows.keys():
            keys = dict[str, tuple[str, str]]()
            for lane in new:
                entry = by_lane[lane][0]
                keys[lane] = entry.queue_name, limit_key_of(entry.headers)
            statements.add_keys(connection, keys)
            rows |= statements.lock_keys(connection, lanes=new)
        return self._counted(connection, rows)

    def first(self, rooms: Mapping[Lane, KeyRoom], by_lane: ByLane) -> set[int]:
        """The ids of the entries that may have places, the first ones of each key."""
        idle, chosen = self.idle_threads(), set[int]()
        for lane, entries in by_lane.items():
            starting = entries[: rooms[lane].starts(idle)]
            chosen.update(entry.record_id for entry in starting)
            idle -= len(starting) if rooms[lane].rate is not None else 0
        return chosen

    def settle(
        self,
        connection: Connection,
        owner: str,
        rooms: Mapping[Lane, KeyRoom],
        *,
        seated: ByLane,
        refused: ByLane,
    ) -> datetime | None:
        """Let entries have places, and others wait.

        Returns when the rate of one of the keys allows the next start.
        """
        statements = self._store.statements
        statements.take_key_places(connection, owner=owner, claims=_claims(seated))
        statements.let_wait(connection, owner=owner, claims=_claims(refused))
        started = {lane: len(entries) for lane, entries in seated.items()}
        rated = {lane: room for lane, room in rooms.items() if room.rate is not None}
        return self._go_on(connection, rated, started) if rated else None

    def register(self, connection: Connection, owner: str, by_lane: ByLane) -> None:
        """Count entries that `owner` ran before it knew of their limit, past it if need be."""
        self.rooms(connection, by_lane)
        statements = self._store.statements
        there = {
            (lane, record_id, count)
            for lane, record_id, count, _ in statements.key_places(connection, lanes=by_lane)
        }
        new = [claim for claim in _claims(by_lane) if claim not in there]
        statements.take_key_places(connection, owner=owner, claims=new)

    # -- waiting entries --------------------------------------------------------------------------

    def look(self, connection: Connection, lanes: Collection[str]) -> datetime | None:
        """Let as many entries of keys go as may start now, and forget keys that nobody needs.

        Returns as `settle`.
        """
        rows = self._store.statements.lock_keys(connection, lanes=lanes)
        rooms = self._counted(connection, rows)
        date = self._go_on(connection, rooms, {})
        idle = [lane for lane, room in rooms.items() if not room.waits and room.arrival <= room.now]
        self._store.statements.remove_idle_keys(connection, lanes=idle)
        return date

    def overlooked(
        self, connection: Connection, after: str, *, changed: bool
    ) -> tuple[list[str], str | None]:
        """The lanes of keys to `look` at among the next ones, and the last of these.

        Entries may go of which nobody has told, or the key is idle. `changed`: the limit may be
        another one. The last lane is None if no key is left. It locks nothing.
        """
        statements, now = self._store.statements, self._store.clock.now()
        # Claims of other keys wait meanwhile: thousands of keys may wait for their rate.
        due_by = None if changed else now
        rows = statements.page_of_keys(connection, after=after, limit=PAGE, due_by=due_by)
        lanes = [row.lane for row in rows]
        places = statements.key_places(connection, lanes=lanes) if lanes else ()
        taken = Counter(lane for lane, _, _, stands in places if stands)
        terms = self._terms(connection, rows)

        def due(row: Row[Any]) -> bool:
            allowed = terms.get(limited_lane(row.queue_name))
            if row.waits is None:
                return not taken[row.lane] and (row.arrival_date or FIRST_DATE) <= now
            if changed or allowed is None:
                return True
            return allowed.per_key is None or taken[row.lane] < allowed.per_key

        found = [row.lane for row in rows if due(row)]
        return found, lanes[-1] if len(lanes) == PAGE else None

    def _terms(self, connection: Connection, rows: Iterable[Row[Any]]) -> dict[str, KeyTerms]:
        lanes = {limited_lane(row.queue_name) for row in rows}
        return self._store.statements.key_terms(connection, lanes=lanes) if lanes else {}

    def _counted(self, connection: Connection, rows: Mapping[str, Row[Any]]) -> dict[Lane, KeyRoom]:
        """The free places of locked keys. Claims that stand no longer are forgotten."""
        if not rows:
            return {}
        statements = self._store.statements
        places = statements.key_places(connection, lanes=rows)
        taken = Counter(lane for lane, _, _, stands in places if stands)
        held = {record_id for _, record_id, _, stands in places if stands}
        gone = {record_id for _, record_id, _, stands in places if not stands} - held
        if gone:
            statements.free_key_places(connection, lanes=rows, ids=gone)
        terms = self._terms(connection, rows.values())
        rated = any(allowed.rate_per_key is not None for allowed in terms.values())
        now = self._store.read_time(connection) if rated else self._store.clock.now()
        rooms = dict[Lane, KeyRoom]()
        for lane, row in rows.items():
            allowed = terms.get(limited_lane(row.queue_name))
            most = LARGEST_COUNT if allowed is None else allowed.per_key or LARGEST_COUNT
            free = max(0, most - taken[lane])
            rate = (
                None
                if allowed is None
                else Rate.of(allowed.rate_per_key, allowed.per_microseconds, allowed.burst_per_key)
            )
            arrival = row.arrival_date or FIRST_DATE
            rooms[Lane(lane)] = KeyRoom(row=row, free=free, rate=rate, arrival=arrival, now=now)
        return rooms

    def _go_on(
        self, connection: Connection, rooms: Mapping[Lane, KeyRoom], started: Mapping[Lane, int]
    ) -> datetime | None:
        """Let others go, and note when to look again. `started`: how many, by key."""
        store, idle = self._store, self.idle_threads() - sum(started.values())
        waiting = store.statements.first_of_keys(connection, lanes=rooms) if rooms else {}
        counts = dict[str, int]()
        dates = dict[str, tuple[datetime | None, datetime | None]]()
        for lane, room in rooms.items():
            arrival, look = room.row.arrival_date, None
            room.start(started.get(lane, 0))
            if room.rate is not None and lane in started:
                arrival = room.arrival
            room.waits = lane in waiting
            if room.waits and room.free:
                counts[lane] = count = min(room.starts(idle), PAGE)
                if room.rate is not None:
                    idle -= count
                    look = room.rate.next(room.arrival, room.now) if not count else None
                elif count == PAGE:
                    look = room.now  # more may wait
            if (arrival, look) != (room.row.arrival_date, room.row.look_date):
                dates[lane] = arrival, look
        store.statements.change_keys(connection, dates=dates)
        store.limit_keys.wake(connection, {lane: count for lane, count in counts.items() if count})
        return min((look for _, look in dates.values() if look is not None), default=None)


def _claims(by_lane: ByLane) -> list[tuple[str, int, int]]:
    return [(lane, *entry.claim) for lane, entries in by_lane.items() for entry in entries]


ALL_KEYS = Lane(KEYED)
"""Stands for the lanes of all keys where it is noted which entries have places."""
