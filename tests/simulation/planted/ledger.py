"""Bugs of the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from sqlalchemy import Connection

import queue_core.storage.moves
from queue_core.claiming import set_aside
from queue_core.claiming.claimer import Claimer
from queue_core.holding.gates import Gates
from queue_core.holding.holdings import Holdings
from queue_core.holding.ledger import Ledger
from queue_core.holding.sweep import Sweep
from queue_core.model.lanes import Lane
from queue_core.model.limit import Limit
from queue_core.posting.insertion import Insertion
from queue_core.storage.moves import Moves
from queue_core.storage.places import Places
from sql.statements.entries import Statements
from tests.simulation.planted.bugs import Planting, bug


@bug
def capacity_not_given_back() -> list[Planting]:
    """What has ended stays in the ledger."""
    return [(Ledger, "give_up", lambda _self, claims: list(claims))]


@bug
def ledger_without_bound() -> list[Planting]:
    """There is always room."""
    return [(Ledger, "room", property(lambda _self: 1000))]


@bug
def waiting_forgotten() -> list[Planting]:
    """What waits by id for room is never read."""
    return [(Claimer, "load_waiting", lambda _self: None)]


@bug
def sweep_against_the_ledger() -> list[Planting]:
    """The sweep gives back what is in hand."""

    def turn(self: Sweep, now: float) -> int:
        if now < self.next_turn:
            return 0
        self.next_turn = now + 8.0
        return self._holdings.release(self._holdings.in_processing())

    return [(Sweep, "turn", turn)]


@bug
def sweep_beside_a_claim() -> list[Planting]:
    """The sweep gives back what was claimed along with outcomes, before the ledger knows of it."""

    @contextmanager
    def sweeping(_self: Gates) -> Iterator[bool]:
        yield True

    return [(Gates, "sweeping", sweeping)]


@bug
def no_sweep() -> list[Planting]:
    """Commits of unknown outcome are left as they are."""
    return [(Sweep, "turn", lambda _self, _now: 0)]


@bug
def sweep_after_a_leave() -> list[Planting]:
    """A sweep that began before its node left gives back what the next process of its name runs."""

    def in_processing(self: Holdings) -> list[tuple[int, int]]:
        fetch, statements = self.store.database.fetch, self.store.statements
        return fetch(lambda connection: statements.in_processing(connection, lane=self.name))

    return [(Holdings, "in_processing", in_processing)]


@bug
def failed_post_kept() -> list[Planting]:
    """The ids of a post whose COMMIT gave no answer stay in the ledger."""

    def committed(self: Insertion) -> list[int]:
        def work(connection: Connection) -> list[int]:
            ids = self.store.insert(connection, self.rows)
            if self.claimed:
                self.ledger.add((record_id, 1) for record_id in ids)
            return ids

        return self.store.database.write(work)

    return [(Insertion, "commit", committed)]


@bug
def born_claimed_past_a_limit() -> list[Planting]:
    """Posts of a limited queue are born claimed."""

    class Unknown(dict[str, Lane]):
        def __contains__(self, _queue_name: object) -> bool:
            return False

    def learn(self: Places, limits: Iterable[Limit]) -> None:
        self.lanes = Unknown({limit.queue_name: limit.lane for limit in limits})

    return [(Places, "learn", learn)]


@bug
def limit_known_from_before() -> list[Planting]:
    """A claim counts by the limit that it has known first."""
    terms: Any = Statements.terms
    known = dict[str, Any]()

    def first(self: Statements, connection: Connection, *, lane: str) -> Any:
        found = terms(self, connection, lane=lane)
        return found and known.setdefault(lane, found)

    return [(Statements, "terms", first)]


@bug
def places_counted_apart() -> list[Planting]:
    """A claim counts the places, and gives the lock of the limit up before it takes any."""
    claim: Any = Moves.claim
    room: Any = Places.room

    def claimed(self: Moves, lane: Lane, owner: str, limit: int, *rest: Any) -> Any:
        places = self._places

        def read(connection: Connection) -> dict[Lane, Any]:
            return {
                one: room(places, connection, one, owner, limit) for one in places.lanes.values()
            }

        rooms = self._store.database.write(read)
        with patch.object(Places, "room", lambda _self, _connection, one, *_rest: rooms[one]):
            return claim(self, lane, owner, limit, *rest)

    return [(Moves, "claim", claimed)]


@bug
def paused_left_behind() -> list[Planting]:
    """What was set aside in a pause stays there."""
    return [(set_aside, "_bring_back", lambda _holdings, _lane, _sticky: 0)]


@bug
def paused_to_anybody() -> list[Planting]:
    """What was set aside in a pause comes back to the node that looks first."""
    return [(set_aside, "_sticky_nodes", lambda _store: set())]


@bug
def failure_lost_with_the_handled() -> list[Planting]:
    """Where history keeps only failures, an entry that has failed leaves no row either."""
    return [(queue_core.storage.moves, "_is_handled", lambda _finished: True)]
