"""The statements on all that has certain search keys, live or ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, delete, select

from sql.search_keys import StoredKey
from sql.statements.base import PairStatements


class BySearchKey(PairStatements):
    """Rows by their search keys, of one queue or of all (None), created until a date."""

    def keyed(
        self,
        connection: Connection,
        *,
        past: bool,
        keys: Mapping[str, StoredKey],
        queue_name: str | None,
        until: datetime,
        ids: Sequence[int] | None = None,
    ) -> list[Row[Any]]:
        """(record_id, processing_state) of the main or the history table, by id.

        Only rows among `ids`, if these are given.
        """
        table = self.past if past else self.main
        rows = select(table.c.record_id, table.c.processing_state)
        # Not the bare column: PostgreSQL, told to avoid sorts, would walk all ids in their order.
        ordered = rows.where(*_having(table, keys, queue_name, until)).order_by(
            table.c.record_id + 0
        )
        among = ordered if ids is None else ordered.where(table.c.record_id.in_(ids))
        return list(connection.execute(among))

    def delete_ended(
        self, connection: Connection, *, ids: Sequence[int], keys: Mapping[str, StoredKey]
    ) -> int:
        """Delete the rows of history that have these ids, and the keys; return how many."""
        past = self.past
        chosen = self._by_id(past, delete(past)).where(past.c.record_id.in_(sorted(ids)))
        return connection.execute(chosen.where(*_equal(past, keys))).rowcount


def _having(
    table: Table, keys: Mapping[str, StoredKey], queue_name: str | None, until: datetime
) -> list[ColumnElement[bool]]:
    of_queue = [] if queue_name is None else [table.c.queue_name == queue_name]
    return [*_equal(table, keys), *of_queue, table.c.created_date <= until]


def _equal(table: Table, keys: Mapping[str, StoredKey]) -> list[ColumnElement[bool]]:
    return [one for column, key in keys.items() for one in key.matches(column, table)]
