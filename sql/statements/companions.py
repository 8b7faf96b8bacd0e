"""The statements that find entries whose rows in other tables a hand has deleted.

Each is one statement, and so sees one state: between two, an entry could have gone on.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, and_, exists, func, or_, select, true

from sql.statements.base import AVAILABLE, WAITING, PairStatements
from sql.tables import in_schema, queue_limit_keys, queue_order_heads, queue_ordered

_KEY = ("table_name", "queue_name", "order_key")


class Companions(PairStatements):
    """Entries that stay where they are, since a row is missing. Nothing is locked."""

    def unordered(self, connection: Connection, *, lane: str, limit: int) -> list[Row[Any]]:
        """(record_id, headers) of entries that have no place in an order key.

        They are WAITING, among the first `limit` entries of a lane. Most of them need no such
        place: their headers tell.
        """
        some, ordered = self._first_of(lane, limit), in_schema(queue_ordered, self.main.schema)
        has_place = exists().where(
            ordered.c.table_name == self.main.name, ordered.c.record_id == some.c.record_id
        )
        found = select(some.c.record_id, some.c.headers)
        return list(connection.execute(found.where(some.c.processing_state == WAITING, ~has_place)))

    def headless(self, connection: Connection, *, lane: str, limit: int) -> list[Row[Any]]:
        """(queue_name, order_key, waiter_id, head_id) of order keys of which nothing will start.

        Entries wait for a turn, among the first `limit` of a lane, and the key has no head, or one
        that is nowhere. Left out are keys whose turn a node gives soon, that wait for other
        entries, or that are held by a failed one.
        """
        schema = self.main.schema
        some, entries = self._first_of(lane, limit), in_schema(queue_ordered, schema)
        heads, head = in_schema(queue_order_heads, schema), self.main.alias("head")
        first, marked = entries.alias("first"), entries.alias("marked")
        first_lane = (
            select(first.c.lane)
            .where(*(first.c[name] == entries.c[name] for name in _KEY))
            .order_by(first.c.place)
            .limit(1)
            .scalar_subquery()
        )
        # Not a join, for which PostgreSQL may walk the whole primary key.
        live = select(head.c.record_id).where(head.c.record_id == heads.c.record_id)
        mine = (
            entries.c.table_name == self.main.name,
            entries.c.record_id == some.c.record_id,
        )
        joined = some.join(entries, and_(*mine)).outerjoin(
            heads, and_(*(heads.c[name] == entries.c[name] for name in _KEY))
        )
        key = (*(entries.c[name] for name in _KEY), heads.c.record_id.label("head_id"))
        waiting = select(*key, func.min(entries.c.record_id).label("waiter_id"))
        headless = (
            self._as_joined(waiting)
            .select_from(joined)
            .where(
                some.c.processing_state == WAITING,
                or_(
                    and_(heads.c.record_id.is_(None), first_lane != lane),
                    and_(
                        heads.c.record_id.is_not(None),
                        heads.c.held_since.is_(None),
                        live.scalar_subquery().is_(None),
                    ),
                ),
            )
            .group_by(*(entries.c[name] for name in _KEY), heads.c.record_id)
            .subquery("headless")
        )
        # Once for each key, of which all entries may be read: it may have a million.
        has_turn = exists().where(
            *(marked.c[name] == headless.c[name] for name in _KEY), marked.c.unstarted == true()
        )
        columns = (headless.c[name] for name in ("queue_name", "order_key", "waiter_id", "head_id"))
        return list(connection.execute(select(*columns).where(~has_turn)))

    def keyless(self, connection: Connection, *, lane: str, end: str, limit: int) -> list[Row[Any]]:
        """(queue_name, record_id) of the first entry of each limit key that has no row.

        Among the first `limit` entries of all lanes from `lane` on, and before `end`.
        """
        main, keys = self.main, in_schema(queue_limit_keys, self.main.schema)
        names = ("lane", "queue_name", "record_id", "processing_state")
        first = self._by_claims(select(*(main.c[name] for name in names)))
        first = first.where(main.c.lane >= lane, main.c.lane < end)
        ordered = first.order_by(main.c.lane, main.c.effective_date, main.c.record_id)
        some = ordered.limit(limit).subquery("some_entries")
        has_row = exists().where(keys.c.table_name == main.name, keys.c.lane == some.c.lane)
        found = select(some.c.queue_name, func.min(some.c.record_id).label("record_id"))
        found = found.where(some.c.processing_state == AVAILABLE, ~has_row)
        return list(connection.execute(found.group_by(some.c.queue_name, some.c.lane)))
