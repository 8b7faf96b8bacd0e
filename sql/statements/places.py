"""The statements of a claim of a limited queue: its limit, and the claims that have places of it.

A transaction that writes here has locked the limit.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    Insert,
    Select,
    String,
    Table,
    Update,
    bindparam,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.util import memoized_property

from sql.statements.base import IN_PROCESSING, batches
from sql.statements.claims import Claim, ReserveName
from sql.statements.outcomes import Outcomes, encoded
from sql.tables import in_schema, queue_limits, queue_places
from sql.types import UtcDateTime

_CLAIMS = msgspec.json.Decoder(list[tuple[int, int]])


class Terms(NamedTuple):
    """The allowance of a limit, and the date from which its rate counts."""

    concurrency: int | None
    per_node: int | None
    rate: int | None
    per_microseconds: int | None
    burst: int | None
    arrival_date: datetime | None


class Bunch(NamedTuple):
    """The places that one owner has taken at once, as far as is known, or has reserved."""

    owner: str
    places: int
    record_id: int = 0

    @property
    def reserved(self) -> bool:
        """Whether it is a reserve."""
        return self.record_id < 0


class Seats(NamedTuple):
    """Places of one limit that `owner` takes for claims, given as (record id, claim count)."""

    lane: str
    owner: str
    claims: Sequence[tuple[int, int]]
    threads: int
    """The places that the owner may have whatever its share is."""
    nodes: int
    """The nodes that share the places."""
    most_bunches: int
    """The most bunches that may be counted."""


class Places(Outcomes):
    """Places that claims of the main table's entries have taken."""

    @memoized_property
    def _limits(self) -> Table:
        return in_schema(queue_limits, self.main.schema)

    @memoized_property
    def _places(self) -> Table:
        return in_schema(queue_places, self.main.schema)

    @memoized_property
    def _owned_of_limit(self) -> Select[Any]:
        main, limits = self.main, self._limits
        queue_name = select(limits.c.queue_name).where(*self._of(limits)).scalar_subquery()
        return select(main.c.record_id, main.c.claim_count).where(
            main.c.lane == bindparam("owner", type_=String()),
            main.c.processing_state == IN_PROCESSING,
            main.c.queue_name == queue_name,
            main.c.effective_date <= bindparam("due_by", type_=UtcDateTime()),
        )

    def owned_of_limit(
        self,
        connection: Connection,
        *,
        lane: str,
        owner: str,
        due_by: datetime,
        besides: Container[int] = (),
    ) -> list[tuple[int, int]]:
        """The claims of a limited queue's entries that an owner has, `besides` some entries.

        `due_by`: none is due later. It spares those that wait in its lane for their date.
        """
        given = {"of_lane": lane, "owner": owner, "due_by": due_by}
        rows = self._rows(connection, self._owned_of_limit, given)
        return [(row[0], row[1]) for row in rows if row[0] not in besides]

    def _of(self, table: Table) -> list[ColumnElement[bool]]:
        # Not "lane": that is what SQLAlchemy calls a column's new value.
        lane = bindparam("of_lane", type_=String())
        return [table.c.table_name == self.main.name, table.c.lane == lane]

    @memoized_property
    def _terms(self) -> Select[Any]:
        columns = [self._limits.c[name] for name in Terms._fields]
        return select(*columns).where(*self._of(self._limits)).with_for_update()

    def terms(self, connection: Connection, *, lane: str) -> Terms | None:
        """The limit of a queue, locked: other takers of its places wait."""
        rows = self._rows(connection, self._terms, {"of_lane": lane})
        return Terms(*rows[0]) if rows else None

    @memoized_property
    def _arrived(self) -> Update:
        date = bindparam("date", type_=UtcDateTime())
        return update(self._limits).where(*self._of(self._limits)).values(arrival_date=date)

    def arrived(self, connection: Connection, *, lane: str, arrival_date: datetime) -> None:
        """Note from when on the rate of a limit counts."""
        self._change(connection, self._arrived, {"of_lane": lane, "date": arrival_date})

    @memoized_property
    def _bunches(self) -> Select[Any]:
        taken = self._places
        return select(taken.c.owner, taken.c.places, taken.c.record_id).where(*self._of(taken))

    def bunches(self, connection: Connection, *, lane: str) -> list[Bunch]:
        """The places of a limited queue. Some of their claims may stand no longer."""
        rows = self._rows(connection, self._bunches, {"of_lane": lane})
        return [Bunch(*row) for row in rows]

    @memoized_property
    def _listed(self) -> Select[Any]:
        taken = self._places
        return select(taken.c.owner, taken.c.claims, taken.c.record_id).where(*self._of(taken))

    @memoized_property
    def _claimed_among(self) -> Select[Any]:
        main = self.main
        found = self._looked_up(select(main.c.record_id, main.c.claim_count))
        return found.where(self._among(), main.c.processing_state == IN_PROCESSING)

    def held_places(
        self, connection: Connection, *, lane: str, due_by: datetime
    ) -> dict[str, list[tuple[int, int]]]:
        """The claims that stand, as (record id, claim count), by owner. None is due later."""
        rows = self._rows(connection, self._listed, {"of_lane": lane})
        reserving = {owner for owner, _, record_id in rows if record_id < 0}
        listed = [
            (owner, _CLAIMS.decode(claims)) for owner, claims, _ in rows if owner not in reserving
        ]
        claimed = set[tuple[int, int]]()
        for batch in batches(record_id for _, claims in listed for record_id, _ in claims):
            given = {"ids": self._bound_ids(batch)}
            claimed.update(
                (row[0], row[1]) for row in self._rows(connection, self._claimed_among, given)
            )
        found = dict[str, list[tuple[int, int]]]()
        for owner, claims in listed:
            found.setdefault(owner, []).extend(claim for claim in claims if claim in claimed)
        for owner in reserving:
            found[owner] = self.owned_of_limit(connection, lane=lane, owner=owner, due_by=due_by)
        return found

    @memoized_property
    def _lock_reserves(self) -> Select[Any]:
        places = self._places
        reserved = select(places.c.owner).where(*self._of(places), places.c.record_id < 0)
        return reserved.with_for_update()

    def lock_reserves(self, connection: Connection, *, lane: str) -> list[str]:
        """Wait until claims by the reserves of a limit have ended; the owners of the reserves."""
        return [row[0] for row in self._rows(connection, self._lock_reserves, {"of_lane": lane})]

    @memoized_property
    def _free_own(self) -> Delete:
        places = self._places
        mine = places.c.owner == bindparam("owner", type_=String())
        return delete(places).where(*self._of(places), mine)

    def free_own_places(self, connection: Connection, *, lane: str, owner: str) -> None:
        """Delete an owner's places of a limited queue, its reserve too."""
        self._change(connection, self._free_own, {"of_lane": lane, "owner": owner})

    def list_own(
        self,
        connection: Connection,
        *,
        lane: str,
        owner: str,
        due_by: datetime,
        besides: Container[int] = (),
    ) -> list[tuple[int, int]]:
        """End an owner's reserve of a limit, and enter its claims anew, `besides` some entries."""
        self.free_own_places(connection, lane=lane, owner=owner)  # first: it waits for its claims
        claims = self.owned_of_limit(
            connection, lane=lane, owner=owner, due_by=due_by, besides=besides
        )
        if claims:
            self.take_places(connection, lane=lane, owner=owner, claims=claims)
        return claims

    def list_all(self, connection: Connection, *, lane: str, due_by: datetime) -> list[Bunch]:
        """End all reserves of a limit, and enter anew all of its claims that stand."""
        self.lock_reserves(connection, lane=lane)  # first: it waits for their claims
        held = self.held_places(connection, lane=lane, due_by=due_by)
        if held:
            self.free_places(connection, lane=lane)
        for owner, claims in held.items():
            if claims:
                self.take_places(connection, lane=lane, owner=owner, claims=claims)
        return [Bunch(owner, len(claims)) for owner, claims in held.items()]

    @memoized_property
    def _free_places(self) -> Delete:
        return delete(self._places).where(*self._of(self._places))

    def free_places(self, connection: Connection, *, lane: str) -> None:
        """Delete all places of a limited queue."""
        self._change(connection, self._free_places, {"of_lane": lane})

    @memoized_property
    def _take_places(self) -> Insert:
        columns = self._places.c
        return (
            insert(self._places)
            .inline()
            .values({column.name: bindparam(column.name, type_=column.type) for column in columns})
        )

    def take_places(
        self, connection: Connection, *, lane: str, owner: str, claims: Sequence[tuple[int, int]]
    ) -> None:
        """Enter claims that have no places, given as (record id, claim count)."""
        record_id, claim_count = claims[0]
        row: dict[str, Any] = {
            "table_name": self.main.name,
            "lane": lane,
            "record_id": record_id,
            "claim_count": claim_count,
            "owner": owner,
            "places": len(claims),
            "claims": encoded(claims),
        }
        self._change(connection, self._take_places, row)

    def reserve_places(
        self, connection: Connection, *, owner: str, name: ReserveName, places: int
    ) -> None:
        """Let an owner that has no places have as many ahead of its claims."""
        row = {
            "table_name": self.main.name,
            **name._asdict(),
            "owner": owner,
            "places": places,
            "claims": "[]",  # all that the owner has
        }
        self._change(connection, self._take_places, row)

    def open_claim(self, connection: Connection, claim: Claim) -> list[Sequence[Any]] | None:
        """As `claim`, in a transaction that is open until `close_claim`. For `seats_at_once`.

        None if nothing was done, because statements of `connection` go by way of SQLAlchemy.
        """
        raise NotImplementedError

    def seat(self, connection: Connection, seats: Seats) -> bool:
        """Lock a limit, and take places, if there are enough for sure.

        False: none was taken, and it is to be found out how many there are.
        """
        raise NotImplementedError

    def close_claim(self, connection: Connection, *, keep: bool) -> None:
        """Commit the claim with its places, or roll both back."""
        raise NotImplementedError
