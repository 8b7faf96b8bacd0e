"""The statements on the entries that have keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, select

from sql.statements.base import AVAILABLE, WAITING
from sql.statements.key_shapes import KeyShapes, key_batches

_STATE_COLUMNS = ("record_id", "processing_state", "error_count")


class KeyEntries(KeyShapes):
    """Tells where entries stand, and locks those that wait."""

    def __init__(self, schema: str | None = None) -> None:
        super().__init__(schema)
        self._known = dict[tuple[Table, bool], Select[Any]]()

    def states(
        self, connection: Connection, table: Table, *, ids: Sequence[int], dates: bool
    ) -> dict[int, Row[Any]]:
        """The states of entries of a main or history table, by id. It locks nothing.

        With `dates`, there is the effective date of a live one, or when it ended.
        """
        # Dates cost the most, and are needed the least.
        date = "finished_date" if "finished_date" in table.c else "effective_date"
        names = (*_STATE_COLUMNS, date) if dates else _STATE_COLUMNS
        statement = self._known.get((table, dates))
        if statement is None:
            columns = [table.c[name] for name in names]
            statement = self._known[table, dates] = self._by_ids(table, select(*columns))
        found = dict[int, Row[Any]]()
        for batch in key_batches(sorted(set(ids))):
            rows = connection.execute(statement, {"ids": self._listed_values(batch)}).all()
            found |= {row[0]: row for row in rows}
        return found

    def lock_waiting(
        self, connection: Connection, main: Table, *, ids: Sequence[int]
    ) -> dict[int, Row[Any]]:
        """Lock those of `ids` that wait, without waiting for any; (record_id, headers, lane) by id.

        An entry that another transaction holds is on its way to run, mostly.
        """
        found = dict[int, Row[Any]]()
        for batch in key_batches(sorted(set(ids))):
            columns = main.c.record_id, main.c.headers, main.c.lane
            statement = self._looked_up(main, select(*columns)).where(
                main.c.record_id.in_(batch), main.c.processing_state.in_([AVAILABLE, WAITING])
            )
            locked = statement.order_by(main.c.record_id).with_for_update(skip_locked=True)
            found |= {row.record_id: row for row in connection.execute(locked)}
        return found

    def _by_ids(self, table: Table, statement: Select[Any]) -> Select[Any]:
        """The statement on the rows whose ids are in the parameter `ids`."""
        listed = self._listed_ids()
        condition = table.c.record_id == listed.c.record_id
        return self._for_each(listed, table, condition, statement)
