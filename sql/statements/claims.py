"""The statements on claims: taken by an owner, proved by their fence, changed, given back.

The fence of a claim is its id, owner and claim count: each write to an entry names all three.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    String,
    Update,
    bindparam,
    exists,
    literal_column,
    select,
    update,
)
from sqlalchemy.types import TypeEngine
from sqlalchemy.util import memoized_property

from sql.statements.base import (
    AVAILABLE,
    IN_PROCESSING,
    PairStatements,
    lane_by_suspicion,
    raised,
    raised_column,
)
from sql.tables import ENTRY_COLUMNS, in_schema, queue_places
from sql.types import UtcDateTime, UtcSince

_NOTHING: Mapping[str, Any] = {}
_CLAIM_ORDER = itemgetter(ENTRY_COLUMNS.index("effective_date"), ENTRY_COLUMNS.index("record_id"))


CLAIM_PARAMETERS: dict[str, TypeEngine[Any]] = {
    "from_lane": String(),  # not "lane": that is what SQLAlchemy calls a column's new value
    "owner": String(),
    "limit": Integer(),
    "since": UtcSince(),
    "due_by": UtcDateTime(),
    "until": UtcDateTime(),
}
"""The parameters of every statement that claims, with their types.

They are the fields of a `Claim`, in order.
"""
RESERVE_PARAMETERS: dict[str, TypeEngine[Any]] = {
    "reserve_lane": String(),
    "reserve_id": BigInteger(),
    "reserve_count": Integer(),
}
"""The parameters of a claim by a reserve: the fields of a `ReserveName`, in order."""


class ReserveName(NamedTuple):
    """Names a row of places that one node has ahead of its claims, in its primary key."""

    lane: str
    record_id: int
    claim_count: int


class Claim(msgspec.Struct):
    """A claim, for `owner`, of up to `limit` entries of `lane` due from `since` to `due_by`.

    `until` is only a note for those who read the table: leases decide who runs an entry. All dates
    are in UTC. A claim by a `reserve` takes nothing unless that stands.
    """

    lane: str
    owner: str
    limit: int
    since: datetime
    due_by: datetime
    until: datetime
    reserve: ReserveName | None = None

    def parameters(self) -> dict[str, Any]:
        """As statements take it."""
        given = dict(zip(CLAIM_PARAMETERS, _IN_ORDER(self), strict=True))
        if self.reserve is not None:
            given |= zip(RESERVE_PARAMETERS, self.reserve, strict=True)
        return given


_IN_ORDER = attrgetter("lane", *list(CLAIM_PARAMETERS)[1:])


def in_claim_order(rows: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    """Rows of all of an entry's columns, as they were found by a claim."""
    return sorted(rows, key=_CLAIM_ORDER)


class Claims(PairStatements):
    """Entries that an owner runs."""

    def _due(self, *columns: ColumnElement[Any]) -> Select[Any]:
        """The first due entries of a lane in claim order, locked; rows of others are skipped."""
        main = self.main
        return (
            self._by_claims(select(*columns))
            .where(
                main.c.lane == bindparam("from_lane"),
                main.c.processing_state == AVAILABLE,
                main.c.effective_date >= bindparam("since", type_=CLAIM_PARAMETERS["since"]),
                main.c.effective_date <= bindparam("due_by"),
            )
            .order_by(main.c.effective_date, main.c.record_id)
            .limit(bindparam("limit"))
            .with_for_update(skip_locked=True)
        )

    def _taken(self) -> dict[str, Any]:
        return {
            "processing_state": IN_PROCESSING,
            "processing_owner": bindparam("owner"),
            "processing_available_date": bindparam("until"),
            "claim_count": raised_column(self.main.c.claim_count),
            "lane": bindparam("owner"),
        }

    def _reserve_stands(self) -> ColumnElement[bool]:
        """Whether the reserve stands that a claim goes by, locked until the claim has committed.

        Who ends a reserve waits for that, and then counts what was claimed.
        """
        places = in_schema(queue_places, self.main.schema)
        named = [
            places.c.table_name == self.main.name,
            # After a fail-over the ids of a name may come again, for another owner.
            places.c.owner == bindparam("owner"),
            *(
                places.c[column] == bindparam(name, type_=kind)
                for column, (name, kind) in zip(
                    ReserveName._fields, RESERVE_PARAMETERS.items(), strict=True
                )
            ),
        ]
        found: Select[Any] = select(literal_column("1")).select_from(places).where(*named)
        return exists(found.with_for_update(read=True, key_share=True))

    @memoized_property
    def _claim(self) -> Update:
        return self._taking(self._due(self.main.c.record_id))

    @memoized_property
    def _claim_reserved(self) -> Update:
        return self._taking(self._due(self.main.c.record_id).where(self._reserve_stands()))

    def _taking(self, due: Select[Any]) -> Update:
        # Without it a planner may run the LIMIT again for each row of a join, and take more than
        # the LIMIT says.
        listed = due.cte("due").prefix_with("MATERIALIZED")
        return (
            update(self.main)
            .where(self._has_id(listed.c.record_id))
            .values(**self._taken())
            .returning(*self.columns)
        )

    def claim(self, connection: Connection, claim: Claim) -> list[Sequence[Any]]:
        """Take entries, and return their rows in claim order.

        The rows are as they are now, or, where they don't say IN_PROCESSING, as they were
        before.
        """
        statement = self._claim if claim.reserve is None else self._claim_reserved
        return in_claim_order(self._rows(connection, statement, claim.parameters()))

    @memoized_property
    def _owned(self) -> Select[Any]:
        return self._owned_where(self._among())

    @memoized_property
    def _owned_one(self) -> Select[Any]:
        return self._owned_where(self.main.c.record_id == bindparam("record_id"))

    def _owned_where(self, condition: ColumnElement[bool]) -> Select[Any]:
        main = self.main
        return select(*self._whole).where(
            condition,
            main.c.processing_owner == bindparam("owner"),
            main.c.processing_state == IN_PROCESSING,
        )

    def owned(
        self, connection: Connection, *, ids: Sequence[int], owner: str
    ) -> Sequence[Sequence[Any]]:
        """Those of `ids` that stand in the table as run by `owner`.

        It proves that their transaction committed.
        """
        if not ids:
            return []
        if len(ids) == 1:  # most often, and an equality is faster
            one = {"record_id": ids[0], "owner": owner}
            return self._entries(connection, self._owned_one, one)
        several = {"ids": self._bound_ids([*ids]), "owner": owner}
        return self._entries(connection, self._owned, several)

    def held(
        self, connection: Connection, *, owner: str, record_id: int, claim_count: int
    ) -> Row[Any] | None:
        """The entry, locked, if `owner` still runs this claim of it."""
        statement = (
            select(*self.columns)
            .where(*self._fence(owner, record_id, claim_count))
            .with_for_update()
        )
        return connection.execute(statement).one_or_none()

    def _fence(self, owner: str, record_id: int, claim_count: int) -> list[ColumnElement[bool]]:
        return [self.main.c.record_id == record_id, *self._claim_of(owner, claim_count)]

    def _claim_of(self, owner: str, claim_count: int) -> list[ColumnElement[bool]]:
        main = self.main
        return [
            main.c.processing_owner == owner,
            main.c.claim_count == claim_count,
            main.c.processing_state == IN_PROCESSING,
        ]

    def change_claimed(
        self,
        connection: Connection,
        *,
        owner: str,
        record_id: int,
        claim_count: int,
        created_date: datetime,
        values: Mapping[str, Any],
        known: Mapping[str, Any] = _NOTHING,
    ) -> bool:
        """Write `values` into an entry that `owner` runs.

        False if its fence no longer holds, or if a column differs from what is `known` of it.
        """
        main = self.main
        held = [*self._fence(owner, record_id, claim_count), main.c.created_date == created_date]
        held += [main.c[name].is_not_distinct_from(value) for name, value in known.items()]
        return connection.execute(update(main).where(*held).values(**values)).rowcount == 1

    def in_processing(self, connection: Connection, *, lane: str) -> list[tuple[int, int]]:
        """(record id, claim count) of the entries of a lane that are IN_PROCESSING."""
        main = self.main
        statement = select(main.c.record_id, main.c.claim_count).where(
            main.c.lane == lane, main.c.processing_state == IN_PROCESSING
        )
        return [(row.record_id, row.claim_count) for row in connection.execute(statement)]

    def release(
        self,
        connection: Connection,
        *,
        owner: str,
        lane: str,
        suspect_lane: str,
        claims: Sequence[tuple[int, int]],
    ) -> int:
        """Put entries that `owner` holds into a lane. Their fence is raised.

        `claims` names them by (record id, claim count).

        One statement for all that have been claimed as often: entries given back in bulk
        were claimed once.
        """
        main = self.main
        by_count = defaultdict[int, list[int]](list)
        for record_id, claim_count in sorted(claims):
            by_count[claim_count].append(record_id)
        released = 0
        for claim_count, ids in by_count.items():
            values = {
                "processing_state": AVAILABLE,
                "processing_owner": None,
                "processing_available_date": None,
                "claim_count": raised(claim_count),
                "lane": lane_by_suspicion(main, lane, suspect_lane),
            }
            held = [main.c.record_id.in_(ids), *self._claim_of(owner, claim_count)]
            statement = self._by_id(main, update(main)).where(*held).values(**values)
            released += connection.execute(statement).rowcount
        return released
