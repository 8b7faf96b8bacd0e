"""The reserves of one node: places of a limit that it has ahead of its claims.

A claim by a reserve is the plain statement of a claim, which asks besides whether the reserve
stands. So places cost nothing for each entry, and no transaction.

A reserve is a row with a number of places. Its node claims no more than these: that is counted
here, in memory, where all that may stand counts. Whoever needs places ends the reserves of others
at any time, and then counts what they have claimed. He waits for claims under way, for these lock
the reserve; and claims after that find it gone. So nobody has to be asked, and what a dead node has
reserved is lost to nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

import msgspec
from sqlalchemy import Connection

from queue_core.model.entry import Entry
from queue_core.model.lanes import Lane, is_limited
from queue_core.runtime.lock import Lock
from sql.statements.claims import Claim, ReserveName
from sql.statements.entries import Statements


class Reserve(msgspec.Struct, frozen=True):
    """Places that this process has ahead of its claims."""

    name: ReserveName
    places: int
    """Without those of claims that are its node's, and that this process does not know."""


class Reserves:
    """The reserves of one main table's limited queue, as one bus or service has them."""

    def __init__(self, held: Callable[[Lane], set[int]]) -> None:
        """`held` tells the ids of held entries that have places of a limit."""
        self._held = held
        self._of = dict[Lane, Reserve]()
        self._unsure = set[Lane]()
        """Limits of which this node may have claims that no row of places stands for."""
        self._booking, self._under_way = Lock(), dict[int, int]()
        """By thread, how many the claim that is under way there may take."""

    def unsure(self, lane: Lane) -> bool:
        """Whether claims of this node are to be listed anew."""
        return lane in self._unsure

    def of(self, lane: Lane) -> Reserve | None:
        """The reserve of a limit that this node has."""
        return self._of.get(lane)

    def learn(self, lane: Lane, reserve: Reserve | None) -> None:
        """This node has a reserve of a limit now; None: all of its claims are listed."""
        if reserve is None:
            self._of.pop(lane, None)
        else:
            self._of[lane] = reserve
        self._unsure.discard(lane)

    def forget(self, lanes: Iterable[Lane] | None = None) -> None:
        """Claim by no reserve of some limits, or of all, until a claim has counted anew."""
        for lane in [*self._of] if lanes is None else lanes:
            if lane in self._of:
                self._unsure.add(lane)  # first: what is not claimed by a reserve is counted
                self._of.pop(lane, None)

    @contextmanager
    def within(self, lanes: Iterable[Lane], claim: Claim | None) -> Iterator[Claim | None]:
        """Yield a claim by a reserve, of as many entries as it has places for; None if of none.

        What it takes has to be told to the ledger in the block.
        """
        thread = threading.get_ident()
        try:
            reserved = None if claim is None else self._book(thread, lanes, claim)
            yield reserved
        except BaseException:
            if thread in self._under_way:
                self.forget()
            raise
        finally:
            self._under_way.pop(thread, None)

    def _book(self, thread: int, lanes: Iterable[Lane], claim: Claim) -> Claim | None:
        [*limited] = lanes
        if len(limited) != 1 or is_limited(claim.lane):
            return None
        with self._booking:
            reserve = self.of(limited[0])
            if reserve is None:
                return None
            left = reserve.places - len(self._held(limited[0])) - sum(self._under_way.values())
            if left <= 0:
                return None
            self._under_way[thread] = limit = min(claim.limit, left)
        return msgspec.structs.replace(claim, limit=limit, reserve=reserve.name)

    def ended(self, claim: Claim) -> Lane | None:
        """The next claim is not to go by the reserve of a claim, and finds out what there is.

        The limit of that reserve, if it stood.
        """
        for lane, reserve in [*self._of.items()]:
            if reserve.name == claim.reserve:
                self.forget([lane])
                return lane
        return None

    def take(
        self,
        statements: Statements,
        connection: Connection,
        lane: Lane,
        *,
        owner: str,
        entries: Sequence[Entry],
        places: int,
        due_by: datetime,
        besides: Container[int],
    ) -> Reserve | None:
        """Reserve places of a locked limit, those of claimed `entries` among them.

        Claims of entries `besides` these are given up. None if this node has more claims than
        that: all of them are listed.
        """
        statements.free_own_places(connection, lane=lane, owner=owner)  # and wait for claims by it
        claims = statements.owned_of_limit(
            connection, lane=lane, owner=owner, due_by=due_by, besides=besides
        )
        if len(claims) > places:
            statements.take_places(connection, lane=lane, owner=owner, claims=claims)
            return None
        # No claim of an entry that exists bears it, nor another reserve.
        name = ReserveName(lane, -entries[0].record_id, entries[0].claim_count)
        statements.reserve_places(connection, owner=owner, name=name, places=places)
        known = self._held(lane).union(entry.record_id for entry in entries)
        strange = sum(record_id not in known for record_id, _ in claims)
        return Reserve(name, places - strange)
