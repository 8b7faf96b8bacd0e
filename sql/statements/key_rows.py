"""The statements on the rows of keys that are named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    select,
    update,
)

from sql.statements.key_shapes import KeyShapes, key_batches

HOLD_COLUMNS = (
    "entry_key",
    "record_id",
    "keep",
    "keep_seconds",
    "ended_state",
    "ended_date",
    "requeue",
)
"""The columns of a key that tell who has it, and for how long."""


class Locking(NamedTuple):
    """Whether a statement locks its rows, and its way with those that others hold."""

    lock: bool
    skip_locked: bool
    nowait: bool

    def of(self, statement: Select[Any], table: Table) -> Select[Any]:
        """The statement, locking rows of `table` if it is to."""
        if not self.lock:
            return statement
        return statement.with_for_update(of=table, skip_locked=self.skip_locked, nowait=self.nowait)


class KeyRows(KeyShapes):
    """Finds, changes and deletes them."""

    def __init__(self, schema: str | None = None) -> None:
        super().__init__(schema)
        self._finds = dict[Locking, Select[Any]]()
        self._with_entries = dict[Table, Select[Any]]()

    def find(
        self,
        connection: Connection,
        table_name: str,
        queue_name: str,
        *,
        keys: Sequence[str],
        lock: bool = False,
        skip_locked: bool = False,
        nowait: bool = False,
    ) -> list[Row[Any]]:
        """The rows of keys, in order, locked if asked for.

        Those that others hold are skipped, or an error at once (`nowait`), if asked for.
        """
        locking = Locking(lock, skip_locked, nowait)
        statement = self._finds.get(locking)
        if statement is None:
            statement = self._finds[locking] = self._finding(locking)
        return self._found(connection, statement, table_name, queue_name, keys)

    def with_entries(
        self, connection: Connection, main: Table, queue_name: str, *, keys: Sequence[str]
    ) -> list[Row[Any]]:
        """The rows of keys, in any order, and how their entries stand in `main`.

        `processing_state` and `error_count` are None for an entry that is not there. A read of
        both at once: it locks nothing.
        """
        statement = self._with_entries.get(main)
        if statement is None:
            statement = self._with_entries[main] = self._finding_entries(main)
        return self._found(connection, statement, main.name, queue_name, keys)

    def _found(
        self,
        connection: Connection,
        statement: Select[Any],
        table_name: str,
        queue_name: str,
        keys: Sequence[str],
    ) -> list[Row[Any]]:
        found = list[Row[Any]]()
        given = {"table_name": table_name, "queue_name": queue_name}
        for batch in key_batches(sorted(set(keys))):
            found += connection.execute(
                statement, {**given, "keys": self._listed_values(batch)}
            ).all()
        return found

    def change(
        self,
        connection: Connection,
        table_name: str,
        queue_name: str,
        keys: Sequence[str],
        values: Mapping[str, Any],
    ) -> None:
        """Write columns of keys that this transaction has locked."""
        for batch in key_batches(keys):
            statement = self._changed(self.table, update(self.table))
            connection.execute(
                statement.where(*self._are(table_name, queue_name, batch)).values(**values)
            )

    def remove(
        self, connection: Connection, table_name: str, queue_name: str, keys: Sequence[str]
    ) -> int:
        """Delete keys, and return how many there were."""
        removed = 0
        for batch in key_batches(keys):
            statement = self._changed(self.table, delete(self.table))
            chosen = statement.where(*self._are(table_name, queue_name, batch))
            removed += connection.execute(chosen).rowcount
        return removed

    def _finding(self, locking: Locking) -> Select[Any]:
        table, listed = self.table, self._listed_keys()
        condition = and_(*self._is(listed.c.entry_key))
        statement = self._for_each(listed, table, condition, select(table))
        return locking.of(statement.order_by(listed.c.entry_key), table)

    def _finding_entries(self, main: Table) -> Select[Any]:
        found = self._finding(Locking(lock=False, skip_locked=False, nowait=False)).subquery()
        # One by one: planners would rather read all of a small table for a join.
        entry = [
            self._looked_up(main, select(main.c[name]))
            .where(main.c.record_id == found.c.record_id)
            .scalar_subquery()
            .label(name)
            for name in ("processing_state", "error_count")
        ]
        return select(*(found.c[name] for name in HOLD_COLUMNS), *entry)

    def _is(self, key: ColumnElement[str]) -> list[ColumnElement[bool]]:
        """The conditions for the row of a key of the queue that is bound."""
        table = self.table
        return [
            table.c.table_name == bindparam("table_name"),
            table.c.queue_name == bindparam("queue_name"),
            table.c.entry_key == key,
        ]

    def _are(
        self, table_name: str, queue_name: str, keys: Sequence[str]
    ) -> list[ColumnElement[bool]]:
        return [
            self.table.c.table_name == table_name,
            self.table.c.queue_name == queue_name,
            self.table.c.entry_key.in_(keys),
        ]
