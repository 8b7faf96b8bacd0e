"""The statements on `queue_keys`: idempotency keys of posts.

All of them are about keys of one queue, in the order of which rows are locked.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, or_, select

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
        ordered = statement.order_by(table.c.table_name, table.c.look_date).limit(1)
        return connection.execute(ordered).first() is not None

    def to_look_at(
        self, connection: Connection, table_name: str, *, now: datetime, limit: int
    ) -> list[Row[Any]]:
        """Lock and return keys whose look date has come. Those that others hold are skipped."""
        table = self.table
        statement = select(table).where(table.c.table_name == table_name, table.c.look_date <= now)
        ordered = statement.order_by(table.c.table_name, table.c.look_date).limit(limit)
        return list(connection.execute(ordered.with_for_update(skip_locked=True)))

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
        table = self.table
        statement = select(table).where(table.c.table_name == table_name)
        if queue_name is not None:
            statement = statement.where(table.c.queue_name == queue_name)
        if after is not None and queue_name is not None:
            statement = statement.where(table.c.entry_key > after[1])
        elif after is not None:
            queue, key = after
            later = (table.c.queue_name == queue) & (table.c.entry_key > key)
            statement = statement.where(
                table.c.queue_name >= queue, or_(table.c.queue_name > queue, later)
            )
        ordered = statement.order_by(
            table.c.table_name, table.c.queue_name, table.c.entry_key
        ).limit(limit)
        return list(connection.execute(ordered))
