"""The statements on limit keys: their rows, which are locked, and the claims that have places.

A key is named by the lane in which its entries wait. A transaction that takes or frees a place of
it, or lets its entries wait or go, has locked its row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import product
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    ScalarSelect,
    Table,
    Update,
    and_,
    bindparam,
    delete,
    exists,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.util import memoized_property

from sql.statements.base import AVAILABLE, IN_PROCESSING, batches, lane_by_suspicion, raised
from sql.statements.insert_new import InsertNew
from sql.statements.waiting import Waiting
from sql.tables import in_schema, queue_limit_keys, queue_limits, queue_places


class KeyTerms(NamedTuple):
    """The limits of a queue for each key."""

    per_key: int | None
    rate_per_key: int | None
    per_microseconds: int | None
    burst_per_key: int | None


class LimitKeys(Waiting):
    """Limit keys of the main table's entries."""

    @memoized_property
    def _of_queues(self) -> Table:
        return in_schema(queue_limits, self.main.schema)

    @memoized_property
    def _keys(self) -> Table:
        return in_schema(queue_limit_keys, self.main.schema)

    @memoized_property
    def _key_places(self) -> Table:
        return in_schema(queue_places, self.main.schema)

    def _mine(self, table: Table, lanes: Collection[str]) -> list[ColumnElement[bool]]:
        return [table.c.table_name == self.main.name, table.c.lane.in_(sorted(lanes))]

    def key_terms(self, connection: Connection, *, lanes: Collection[str]) -> dict[str, KeyTerms]:
        """The limits of queues, by their lanes, for each key. It locks nothing."""
        limits = self._of_queues
        columns = [limits.c[name] for name in KeyTerms._fields]
        found = select(limits.c.lane, *columns).where(*self._mine(limits, lanes))
        return {lane: KeyTerms(*terms) for lane, *terms in connection.execute(found)}

    # -- the keys ---------------------------------------------------------------------------------

    def lock_keys(self, connection: Connection, *, lanes: Collection[str]) -> dict[str, Row[Any]]:
        """Lock the rows of keys, and return them by lane. Keys without a row are left out."""
        keys, found = self._keys, dict[str, Row[Any]]()
        for batch in batches(lanes):
            rows = select(keys).where(*self._mine(keys, batch)).order_by(keys.c.lane)
            found |= {row.lane: row for row in connection.execute(rows.with_for_update())}
        return found

    def add_keys(self, connection: Connection, keys: Mapping[str, tuple[str, str]]) -> None:
        """Make rows of keys, unless others do; `keys` has queue name and key by lane."""
        table_name = self.main.name
        rows = [
            {"table_name": table_name, "lane": lane, "queue_name": queue_name, "limit_key": key}
            for lane, (queue_name, key) in sorted(keys.items())
        ]
        connection.execute(InsertNew(self._keys).inline(), rows)

    @memoized_property
    def _change_key(self) -> Update:
        keys = self._keys
        mine = (keys.c.table_name == self.main.name, keys.c.lane == bindparam("of_lane"))
        return (
            update(keys)
            .where(*mine)
            .values(arrival_date=bindparam("arrival"), look_date=bindparam("look"))
        )

    def change_keys(
        self,
        connection: Connection,
        *,
        dates: Mapping[str, tuple[datetime | None, datetime | None]],
    ) -> None:
        """Note from when on the rates of keys count, and when they allow the next start.

        `dates` has both by lane.
        """
        rows = [
            {"of_lane": lane, "arrival": arrival, "look": look}
            for lane, (arrival, look) in sorted(dates.items())
        ]
        if rows:
            connection.execute(self._change_key, rows)

    def page_of_keys(
        self, connection: Connection, *, after: str, limit: int, due_by: datetime | None = None
    ) -> list[Row[Any]]:
        """(lane, queue_name, arrival_date, look_date, waits) of keys in the order of their lanes.

        `waits`: an entry that waits for a place, if there is one. `due_by` leaves out keys that
        wait for their rate until later, and those that are only kept until then.
        """
        keys, first = self._keys, self._first()
        dates = keys.c.arrival_date, keys.c.look_date
        columns = keys.c.lane, keys.c.queue_name, *dates, first.label("waits")
        mine = [keys.c.table_name == self.main.name, keys.c.lane > after]
        if due_by is not None:
            come = [or_(date.is_(None), date <= due_by) for date in dates]
            mine += [come[1], or_(come[0], first.is_not(None))]
        return list(
            connection.execute(select(*columns).where(*mine).order_by(keys.c.lane).limit(limit))
        )

    def arrival_of_key(self, connection: Connection, *, lane: str) -> datetime | None:
        """From when on the rate of a key counts. It locks nothing."""
        date = select(self._keys.c.arrival_date).where(*self._mine(self._keys, [lane]))
        found: datetime | None = connection.execute(date).scalar_one_or_none()
        return found

    def keys_to_look_at(self, connection: Connection, *, now: datetime, limit: int) -> list[str]:
        """The lanes of keys whose rate allows a start now, for which they waited."""
        keys = self._keys
        due = (keys.c.table_name == self.main.name, keys.c.look_date <= now)
        ordered = select(keys.c.lane).where(*due).order_by(keys.c.look_date).limit(limit)
        return list(connection.execute(ordered).scalars())

    def next_look_at_keys(self, connection: Connection) -> datetime | None:
        """When the rate of a key allows the next start for which it waits."""
        keys = self._keys
        dated = (keys.c.table_name == self.main.name, keys.c.look_date.is_not(None))
        first = select(keys.c.look_date).where(*dated).order_by(keys.c.look_date).limit(1)
        found: datetime | None = connection.execute(first).scalar()
        return found

    def remove_idle_keys(self, connection: Connection, *, lanes: Collection[str]) -> None:
        """Delete the rows of locked keys that have neither places nor entries that wait."""
        keys, places, main = self._keys, self._key_places, self.main
        of_key = and_(places.c.table_name == keys.c.table_name, places.c.lane == keys.c.lane)
        connection.execute(
            delete(keys).where(
                *self._mine(keys, lanes),
                ~exists().where(of_key),
                ~exists().where(main.c.lane == keys.c.lane, main.c.lane >= ""),
            )
        )

    # -- their places -----------------------------------------------------------------------------

    def key_places(
        self, connection: Connection, *, lanes: Collection[str]
    ) -> list[tuple[str, int, int, bool]]:
        """(lane, record id, claim count, whether that claim stands) of the places of keys."""
        places, main = self._key_places, self.main
        claims = and_(
            main.c.record_id == places.c.record_id,
            main.c.claim_count == places.c.claim_count,
            main.c.processing_state == IN_PROCESSING,
        )
        columns = places.c.lane, places.c.record_id, places.c.claim_count, main.c.record_id
        rows = select(*columns).select_from(places.outerjoin(main, claims))
        found = connection.execute(rows.where(*self._mine(places, lanes)))
        return [(lane, one, count, claimed is not None) for lane, one, count, claimed in found]

    def take_key_places(
        self, connection: Connection, *, owner: str, claims: Sequence[tuple[str, int, int]]
    ) -> None:
        """Enter claims that have no places, as (lane, record id, claim count)."""
        rows = [
            {
                "table_name": self.main.name,
                "lane": lane,
                "record_id": record_id,
                "claim_count": claim_count,
                "owner": owner,
                "places": 1,
                "claims": "",
            }
            for lane, record_id, claim_count in claims
        ]
        if rows:
            connection.execute(insert(self._key_places).inline(), rows)

    def free_key_places(
        self, connection: Connection, *, lanes: Collection[str], ids: Collection[int]
    ) -> None:
        """Delete the places of entries."""
        places = self._key_places
        for some_lanes, some_ids in product(batches(lanes), batches(ids)):
            mine = (*self._mine(places, some_lanes), places.c.record_id.in_(some_ids))
            connection.execute(delete(places).where(*mine))

    # -- who waits for one ------------------------------------------------------------------------

    def _first(self) -> ScalarSelect[Any]:
        main = self.main
        of_key = (main.c.lane == self._keys.c.lane, main.c.processing_state == AVAILABLE)
        # The last says that a lane is named: the index of claims answers nothing else.
        ordered = select(main.c.record_id).where(*of_key, main.c.lane >= "")
        ordered = ordered.order_by(main.c.effective_date, main.c.record_id).limit(1)
        return ordered.correlate(self._keys).scalar_subquery()

    def first_of_keys(self, connection: Connection, *, lanes: Collection[str]) -> dict[str, int]:
        """The first entry that waits in each lane, where one does."""
        keys, found = self._keys, dict[str, int]()
        for batch in batches(lanes):
            rows = select(keys.c.lane, self._first()).where(*self._mine(keys, batch))
            found |= {lane: first for lane, first in connection.execute(rows) if first is not None}
        return found

    def wake(self, connection: Connection, *, ids: Collection[int], suspect_lane: str) -> int:
        """Let entries that wait for places of their keys be claimed; returns how many.

        Those that another transaction holds are left out. Suspects go to a lane apart.
        """
        main = self.main
        free = [
            row.record_id
            for row in self.lock_free(connection, ids=sorted(ids))
            if row.processing_state == AVAILABLE
        ]
        values, awake = {"lane": lane_by_suspicion(main, "", suspect_lane)}, 0
        for batch in batches(free):
            let_go = self._by_id(main, update(main)).where(main.c.record_id.in_(batch))
            awake += connection.execute(let_go.values(**values)).rowcount
        return awake

    @memoized_property
    def _let_wait(self) -> Update:
        main = self.main
        claim = [
            main.c.record_id == bindparam("id"),
            main.c.claim_count == bindparam("count"),
            main.c.processing_owner == bindparam("owner"),
            main.c.processing_state == IN_PROCESSING,
        ]
        values: dict[str, Any] = {
            "processing_state": AVAILABLE,
            "processing_owner": None,
            "processing_available_date": None,
            "claim_count": bindparam("raised"),
            "lane": bindparam("to_lane"),
        }
        return self._by_id(main, update(main)).where(*claim).values(**values)

    def let_wait(
        self, connection: Connection, *, owner: str, claims: Sequence[tuple[str, int, int]]
    ) -> None:
        """Give up claims, as (lane, record id, claim count): their entries wait in these lanes."""
        rows = [
            {"to_lane": lane, "id": one, "count": count, "raised": raised(count), "owner": owner}
            for lane, one, count in sorted(claims)
        ]
        if rows:
            connection.execute(self._let_wait, rows)
