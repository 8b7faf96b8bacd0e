"""The statements on `queue_ordered` and `queue_order_heads`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Table,
    delete,
    func,
    insert,
    select,
    true,
    update,
)

from sql.statements.base import batches
from sql.statements.insert_new import inserted
from sql.tables import in_schema, queue_order_heads, queue_ordered

_POSTED = 2**62
"""More than any place of a post. Counters of places ignore places below zero."""


class OrderKey(NamedTuple):
    """Names entries that run one after the other."""

    table_name: str
    queue_name: str
    order_key: str


class Ordered:
    """With a `schema`, they find the tables whatever the session's search path is."""

    def __init__(self, schema: str | None = None) -> None:
        self.entries = in_schema(queue_ordered, schema)
        self.heads = in_schema(queue_order_heads, schema)

    def add(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Enter entries, in their order."""
        connection.execute(insert(self.entries).inline(), list(rows))

    def begin(self, connection: Connection, key: OrderKey, record_id: int) -> bool:
        """Make an entry the head of its key; False if the key has one.

        Waits for a transaction that gives the key a head, or takes the last one away.
        """
        return inserted(connection, self.heads, {**key._asdict(), "record_id": record_id})

    def lock_head(self, connection: Connection, key: OrderKey) -> bool:
        """Lock the head of a key; False if it has none.

        The end of the head waits then, and sees the rows that this transaction has entered.
        """
        statement = select(self.heads.c.record_id).where(*_is(self.heads, key))
        return connection.execute(statement.with_for_update()).one_or_none() is not None

    def first(self, connection: Connection, key: OrderKey) -> Row[Any] | None:
        """(record_id, lane) of the entry that was posted first."""
        entries = self.entries
        statement = select(entries.c.record_id, entries.c.lane).where(*_is(entries, key))
        rows: list[Row[Any]] = list(
            connection.execute(statement.order_by(entries.c.place).limit(1))
        )
        return rows[0] if rows else None

    def head(self, connection: Connection, key: OrderKey) -> Row[Any] | None:
        """The head of a key."""
        rows: list[Row[Any]] = list(
            connection.execute(select(self.heads).where(*_is(self.heads, key)))
        )
        return rows[0] if rows else None

    def lane(self, connection: Connection, table_name: str, record_id: int) -> str | None:
        """The lane of an entry; None if it has none."""
        entries = self.entries
        mine = select(entries.c.lane).where(*_has_id(entries, table_name, record_id))
        found: str | None = connection.execute(mine).scalar_one_or_none()
        return found

    def places(
        self, connection: Connection, table_name: str, *, ids: Sequence[int]
    ) -> list[Row[Any]]:
        """Those of `ids` that have a place, in the order of places."""
        entries, found = self.entries, list[Row[Any]]()
        for batch in batches(ids):
            mine = entries.c.table_name == table_name, entries.c.record_id.in_(batch)
            found += connection.execute(select(entries).where(*mine))
        return sorted(found, key=attrgetter("place"))

    def give_lane(
        self, connection: Connection, table_name: str, record_id: int, lane: str, *, unstarted: bool
    ) -> None:
        """Give an entry another lane. `unstarted`: a node is to give its key a turn then."""
        mine = update(self.entries).where(*_has_id(self.entries, table_name, record_id))
        connection.execute(mine.values(lane=lane, unstarted=unstarted))

    def unstarted_in(self, connection: Connection, key: OrderKey, lane: str) -> list[int]:
        """The entries of a lane for which a node is to give their key a turn."""
        entries = self.entries
        mine = (*_is(entries, key), entries.c.unstarted == true(), entries.c.lane == lane)
        return list(connection.execute(select(entries.c.record_id).where(*mine)).scalars())

    def put_first(self, connection: Connection, place: int) -> None:
        """Put an entry before all that were posted, behind those that were put there before."""
        mine = update(self.entries).where(self.entries.c.place == place)
        connection.execute(mine.values(place=place - _POSTED))

    def remove(self, connection: Connection, table_name: str, record_id: int) -> None:
        """An entry waits no longer, and is no head."""
        connection.execute(
            delete(self.entries).where(*_has_id(self.entries, table_name, record_id))
        )

    def end_head(self, connection: Connection, key: OrderKey, record_id: int) -> bool:
        """Take a key its head; False if the entry was not the head."""
        mine = (*_is(self.heads, key), self.heads.c.record_id == record_id)
        return connection.execute(delete(self.heads).where(*mine)).rowcount == 1

    def hold(self, connection: Connection, key: OrderKey, record_id: int, since: datetime) -> bool:
        """Keep a failed entry as the head, so that the others wait; False if it was not."""
        mine = (*_is(self.heads, key), self.heads.c.record_id == record_id)
        held = update(self.heads).where(*mine).values(held_since=since)
        return connection.execute(held).rowcount == 1

    def resume(self, connection: Connection, key: OrderKey, failed_id: int, record_id: int) -> bool:
        """Put a copy of the failed entry in its place as the head; False if it holds nothing."""
        mine = (*_is(self.heads, key), self.heads.c.record_id == failed_id)
        held = update(self.heads).where(*mine, self.heads.c.held_since.is_not(None))
        return connection.execute(held.values(record_id=record_id, held_since=None)).rowcount == 1

    def renew(self, connection: Connection, key: OrderKey, old_id: int, new_id: int) -> None:
        """An entry lives on under another id."""
        for table in (self.entries, self.heads):
            mine = (*_is(table, key), table.c.record_id == old_id)
            connection.execute(update(table).where(*mine).values(record_id=new_id))

    def unstarted(self, connection: Connection, table_name: str, limit: int) -> list[OrderKey]:
        """Keys of entries, of `limit` at most, that callers' transactions have changed."""
        entries = self.entries
        columns = [entries.c[name] for name in OrderKey._fields]
        posted = (entries.c.table_name == table_name, entries.c.unstarted == true())
        found = connection.execute(select(*columns).where(*posted).limit(limit))
        return sorted({OrderKey(*row) for row in found})

    def started(self, connection: Connection, key: OrderKey) -> bool:
        """The key of its entries has had a turn; False if somebody holds one of them.

        A caller's transaction may remove one that another has just posted.
        """
        entries = self.entries
        mine = select(entries.c.place).where(*_is(entries, key), entries.c.unstarted == true())
        free = list(connection.execute(mine.with_for_update(skip_locked=True)).scalars())
        for batch in batches(free):
            changed = update(entries).where(entries.c.place.in_(batch))
            connection.execute(changed.values(unstarted=False))
        return connection.execute(mine.limit(1)).first() is None

    def held(self, connection: Connection, table_name: str) -> list[Row[Any]]:
        """The heads that have failed, by queue and key, and how many entries are behind each."""
        heads, entries = self.heads, self.entries
        behind = select(func.count()).where(
            *(entries.c[name] == heads.c[name] for name in OrderKey._fields)
        )
        statement = select(heads, behind.scalar_subquery().label("waiting")).where(
            heads.c.table_name == table_name, heads.c.held_since.is_not(None)
        )
        return list(connection.execute(statement.order_by(heads.c.queue_name, heads.c.order_key)))

    def held_counts(
        self, connection: Connection, table_name: str, *, limit: int
    ) -> list[tuple[str, int]]:
        """(queue name, number) of the heads that have failed, among a table's first `limit`."""
        heads = self.heads
        first = select(heads.c.queue_name, heads.c.held_since).where(
            heads.c.table_name == table_name
        )
        # By no column that has one value: MariaDB would sort all rows.
        some = first.order_by(heads.c.queue_name, heads.c.order_key).limit(limit).subquery()
        held = select(some.c.queue_name, func.count()).where(some.c.held_since.is_not(None))
        rows = connection.execute(held.group_by(some.c.queue_name))
        return [(queue_name, count) for queue_name, count in rows]


def _is(table: Table, key: OrderKey) -> list[ColumnElement[bool]]:
    return [table.c[name] == value for name, value in key._asdict().items()]


def _has_id(table: Table, table_name: str, record_id: int) -> list[ColumnElement[bool]]:
    return [table.c.table_name == table_name, table.c.record_id == record_id]
