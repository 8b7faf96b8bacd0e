"""The statements on entries, written once in SQLAlchemy Core.

A module per database overrides those that it needs, or rewards, in another shape. Callers never ask which database it
is. Statements run on the connection given and never commit; every date is bound by the caller, in UTC.

Lock order: rows are locked in claim order by claims (which skip locked rows and so never wait), and in primary-key
order by everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, Row, insert, select, update

from sql.statements.base import AVAILABLE
from sql.statements.claims import Claims
from sql.statements.history import History
from sql.statements.lanes import Lanes
from sql.statements.outcomes import Outcomes
from sql.tables import ENTRY_COLUMNS


class Statements(Claims, Outcomes, Lanes, History):
    """All statements on one pair of tables: those of its bases, and what a user posts, asks for or changes."""

    @cached_property
    def _insert_one(self) -> Any:
        return insert(self.main).returning(self.main.c.record_id)

    @cached_property
    def _insert_many(self) -> Any:
        return insert(self.main).returning(self.main.c.record_id, sort_by_parameter_order=True)

    def insert(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """Insert entries (all with the same keys, in order) and return their ids in the same order."""
        if len(rows) == 1:
            return [connection.execute(self._insert_one, rows[0]).scalar_one()]
        return list(connection.execute(self._insert_many, list(rows)).scalars())

    def search(
        self,
        connection: Connection,
        *,
        past: bool,
        where: Callable[[FromClause], Sequence[ColumnElement[bool]]],
        limit: int | None,
        newest_first: bool = False,
    ) -> list[Row[Any]]:
        """Entries of the main or the history table that match, in the order of their ids."""
        table = self.past if past else self.main
        names = [*ENTRY_COLUMNS, *(("finished_date", "started_date", "last_error") if past else ())]
        order = table.c.record_id.desc() if newest_first else table.c.record_id
        statement = (
            select(*(table.c[name] for name in names)).where(*where(table)).order_by(order).limit(limit)
        )
        return list(connection.execute(statement))

    def lock_available(self, connection: Connection, *, ids: Sequence[int]) -> list[int]:
        """Lock by primary key those of `ids` that nobody runs, and return them."""
        main = self.main
        statement = select(main.c.record_id).where(
            main.c.record_id.in_(sorted(ids)), main.c.processing_state == AVAILABLE
        )
        return list(connection.execute(statement.order_by(main.c.record_id).with_for_update()).scalars())

    def change_available(
        self, connection: Connection, *, record_id: int, queue_name: str | None, values: Mapping[str, Any]
    ) -> bool:
        """Write `values` into an entry (of a queue, if one is named) that nobody runs; False if there is none such."""
        main = self.main
        statement = update(main).where(main.c.record_id == record_id, main.c.processing_state == AVAILABLE)
        if queue_name is not None:
            statement = statement.where(main.c.queue_name == queue_name)
        return connection.execute(statement.values(**values)).rowcount == 1
