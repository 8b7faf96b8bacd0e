"""The statements on `queue_keys`: idempotency keys of posts.

All of them are about keys of one queue, in the order of which rows are locked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Insert, Row, select

from sql.statements.key_entries import KeyEntries
from sql.statements.key_posts import KeyPosts


class Keys(KeyPosts, KeyEntries):
    """All statements on the table: those of its bases, and those for maintenance and reading."""

    def are_due(self, connection: Connection, table_name: str, *, now: datetime) -> bool:
        """Whether the look date of any key has come."""
        table = self.table
        statement = select(table.c.look_date).where(
            table.c.table_name == table_name, table.c.look_date <= now
        )
        ordered = statement.order_by(table.c.look_date).limit(1)
        return connection.execute(ordered).first() is not None

    def to_look_at(
        self, connection: Connection, table_name: str, *, now: datetime, limit: int
    ) -> list[Row[Any]]:
        """Lock and return keys whose look date has come. Those that others hold are skipped."""
        table = self.table
        statement = select(table).where(table.c.table_name == table_name, table.c.look_date <= now)
        ordered = statement.order_by(table.c.look_date).limit(limit)
        return list(connection.execute(ordered.with_for_update(skip_locked=True)))

    def requeued(
        self,
        connection: Connection,
        table_name: str,
        *,
        queue_name: str | None,
        parts: Sequence[str],
    ) -> list[Row[Any]]:
        """(queue_name, entry_key, requeue) of keys whose `requeue` holds all `parts`.

        Keys without a look date have none; all others of the main table are read.
        """
        table = self.table
        found = select(table.c.queue_name, table.c.entry_key, table.c.requeue).where(
            table.c.table_name == table_name,
            table.c.look_date.is_not(None),
            *(table.c.requeue.contains(part, autoescape=True) for part in parts),
        )
        if queue_name is not None:
            found = found.where(table.c.queue_name == queue_name)
        return list(connection.execute(found))

    def page(
        self,
        connection: Connection,
        table_name: str,
        *,
        queue_name: str | None,
        after: tuple[str, str] | None,
        limit: int,
    ) -> list[Row[Any]]:
        """Keys of one queue, or of all, in the order of queue and key, after one of them."""
        queues, keys = self.table.c.queue_name, self.table.c.entry_key
        # By no column that has one value: MariaDB would sort all rows.
        if after is None and queue_name is None:
            return self._first(connection, table_name, [], [queues, keys], limit)
        queue, key = after or (queue_name, "")
        found = self._first(connection, table_name, [queues == queue, keys > key], [keys], limit)
        # As one statement, MariaDB would read the queue from its begin.
        if queue_name is None and len(found) < limit:
            others = [queues > queue]
            found += self._first(connection, table_name, others, [queues, keys], limit - len(found))
        return found

    def _first(
        self,
        connection: Connection,
        table_name: str,
        where: Sequence[ColumnElement[bool]],
        order: Sequence[ColumnElement[str]],
        limit: int,
    ) -> list[Row[Any]]:
        table = self.table
        statement = select(table).where(table.c.table_name == table_name, *where)
        ordered = self._looked_up(table, statement.order_by(*order).limit(limit))
        return list(connection.execute(ordered))


def changing(put: Any, names: Sequence[str]) -> Insert:
    """An INSERT of the columns `names`, made to change rows that are there.

    `put` is the INSERT of a database that has ON CONFLICT.
    """
    keys = put.table.primary_key.columns
    values = {name: put.excluded[name] for name in names if name not in keys}
    changed: Insert = put.on_conflict_do_update(index_elements=list(keys), set_=values)
    return changed
