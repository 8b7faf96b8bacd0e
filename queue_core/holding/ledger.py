"""The entries that this node holds now: claimed or born claimed, and not yet written as finished.

An entry that the table says this node runs, and that is not in here, came from a commit whose end
was never learnt; the sweep takes it. Bounded by `queue_capacity`: past it entries are posted
AVAILABLE, to be claimed, as are those with a date.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from itertools import islice

from queue_core.model.lanes import ANY_NODE, SUSPECT, Lane
from queue_core.model.transit import Transit
from queue_core.runtime.lock import Lock

MOST_AWAITING_TURN = 1_000
"""Entries that may wait for a serial handler without filling the pool.

Their events are in memory. No benchmark compares it with others.
"""


_NONE = frozenset[int]()


class Ledger:
    """In-flight ids.

    Each call is atomic under the interpreter's lock; an id is in `waiting` or with the pool.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.changes = 0
        """Raised whenever an entry is to be held.

        After a while without a change, the table can hold no new entry that is not known here.
        """
        self._claims: dict[int, int] = {}
        self._awaiting_turn = set[int]()
        self._adding = Lock()
        self._waiting: deque[int] = deque()
        self._origins: dict[Lane, set[int]] = {ANY_NODE: set(), SUSPECT: set()}

    def __contains__(self, record_id: int) -> bool:
        return record_id in self._claims

    def __len__(self) -> int:
        return len(self._claims)

    @property
    def room(self) -> int:
        """The entries that may be held in addition."""
        return self._capacity - len(self._claims)

    @property
    def active(self) -> int:
        """The entries that are with the handler pool, those that await a turn not counted."""
        awaiting = min(len(self._awaiting_turn), MOST_AWAITING_TURN)
        return len(self._claims) - len(self._waiting) - awaiting

    @property
    def waiting(self) -> int:
        """The entries that wait, by id only, for room in the pool."""
        return len(self._waiting)

    def add(
        self,
        claims: Iterable[tuple[int, int]],
        lane: Lane | None = None,
        transit: Transit | None = None,
    ) -> None:
        """Hold entries, given as (record id, claim count); lane None: they were born claimed.

        Those that were not held are in `transit` then: an entry that two threads have found is run
        by the first of them.
        """
        with self._adding:
            self.changes += 1
            new = self._not_held(claims)
            if transit is not None:
                transit.held.extend(new)  # first: after an exception nobody would know them
            self._claims.update(new)
        if lane in self._origins:  # of the node's own lane nobody asks
            self._origins[lane].update(new)

    def place(self, lane: Lane, ids: Iterable[int]) -> None:
        """Entries that are to be held have places of a limited queue, whose lane is `lane`."""
        self._origins.setdefault(lane, set()).update(ids)

    def displace(self, ids: Iterable[int]) -> None:
        """Entries that are not held have no places: they were to be, and never were."""
        gone = [record_id for record_id in ids if record_id not in self._claims]
        for placed in list(self._origins.values()):
            placed.difference_update(gone)

    def has_place(self, lane: Lane, record_id: int) -> bool:
        """Whether an entry has a place of the limited queue with this lane."""
        return record_id in self._origins.get(lane, ())

    def placed(self, lane: Lane) -> set[int]:
        """The ids of held entries that have places of a limited queue; not to be changed."""
        return self._origins.get(lane) or set()

    def _not_held(self, claims: Iterable[tuple[int, int]]) -> dict[int, int]:
        return {
            record_id: count for record_id, count in claims if self._claims.get(record_id) != count
        }

    def wait_for_turn(self, record_id: int) -> None:
        """An entry that is held waits for a serial handler's turn, and for no thread."""
        if record_id in self._claims:
            self._awaiting_turn.add(record_id)

    def take_turn(self, record_id: int) -> None:
        """Its turn has come."""
        self._awaiting_turn.discard(record_id)

    def held_from(self, lane: Lane, besides: Iterable[int] = ()) -> int:
        """The number of held entries, `besides` some, that were claimed from `lane`.

        `lane` is the lane of suspects, that of any node, or that of a limited queue.
        """
        return len(self._origins.get(lane, _NONE).difference(besides))

    def active_from(self, lane: Lane, besides: Iterable[int] = ()) -> int:
        """As `held_from`, those that await a turn not counted."""
        awaiting = len(self._origins[lane] & self._awaiting_turn) if self._awaiting_turn else 0
        return self.held_from(lane, besides) - min(awaiting, MOST_AWAITING_TURN)

    def discard(self, record_ids: Iterable[int]) -> None:
        """Hold entries no longer."""
        claims = self._claims
        origins = [ids for ids in (self._awaiting_turn, *list(self._origins.values())) if ids]
        for record_id in record_ids:
            claims.pop(record_id, None)
            for origin in origins:
                origin.discard(record_id)

    def give_up(self, claims: Iterable[tuple[int, int]]) -> None:
        """Hold claims no longer, given as (record id, claim count).

        An entry that was claimed again meanwhile stays held.
        """
        self.discard(
            record_id
            for record_id, claim_count in claims
            if self._claims.get(record_id) == claim_count
        )

    def wait(self, transit: Transit) -> None:
        """Let the entries that are for `later` wait for room."""
        # In one call, which no signal cuts in two.
        transit.waiting.extend(map(self._waiting.append, transit.later))

    def first_waiting(self, limit: int) -> list[int]:
        """Up to `limit` waiting ids, in order, which go on waiting."""
        return list(islice(self._waiting, limit))

    def all_waiting(self) -> list[int]:
        """All waiting ids, in order."""
        return list(self._waiting)

    def next_waiting(self, limit: int) -> list[int]:
        """Take up to `limit` waiting ids, in order."""
        return [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]

    def held(self) -> list[tuple[int, int]]:
        """All that is held, as (record id, claim count)."""
        return list(self._claims.items())

    def keep(self, claims: Collection[tuple[int, int]]) -> None:
        """Hold nothing but `claims`, as far as they are held."""
        self._waiting.clear()
        self.give_up(set(self.held()) - set(claims))
