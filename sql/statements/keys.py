"""The statements on `queue_keys`: idempotency keys of posts.

All of them are about keys of one queue, in the order of which rows are locked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Double,
    Executable,
    FromClause,
    Insert,
    Row,
    Select,
    String,
    Table,
    and_,
    bindparam,
    case,
    delete,
    literal,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.types import TypeEngine
from sqlalchemy.util import memoized_property

from sql.statements.base import AVAILABLE, IDS, WAITING, S
from sql.statements.outcomes import encoded
from sql.tables import KEY_LENGTH, in_schema, queue_keys
from sql.types import UtcDateTime, name

PERIOD = "period"
"""The `keep` of a key that is kept for a time after its entry's end."""

BATCH_COLUMNS: dict[str, TypeEngine[Any]] = {
    "entry_key": name(KEY_LENGTH),
    "record_id": BigInteger(),
    "keep": String(16),
    "keep_seconds": Double(),
}
"""A `KeyRow`'s columns, in order."""


class KeyRow(msgspec.Struct):
    """A key that a post takes, and the entry that has it; None before the entry is inserted."""

    entry_key: str
    record_id: int | None
    keep: str
    keep_seconds: float | None


class Locking(NamedTuple):
    """Whether a statement locks its rows, and what it does about those that others hold."""

    lock: bool
    skip_locked: bool
    nowait: bool

    def of(self, statement: Select[Any], table: Table) -> Select[Any]:
        """The statement, locking rows of `table` if it is to."""
        if not self.lock:
            return statement
        return statement.with_for_update(of=table, skip_locked=self.skip_locked, nowait=self.nowait)


class Keys:
    """With a `schema`, they find the table whatever the session's search path is."""

    def __init__(self, schema: str | None = None) -> None:
        self.table = in_schema(queue_keys, schema)
        self._finds = dict[Locking, Select[Any]]()
        self._known = dict[tuple[Table, bool], Select[Any]]()

    # -- the shapes of one database ---------------------------------------------------------------

    def _listed(self) -> FromClause:
        """The bound JSON parameter `batch` as a table with `BATCH_COLUMNS`."""
        raise NotImplementedError

    def _listed_keys(self) -> FromClause:
        """The bound JSON parameter `keys` as a table with the column `entry_key`."""
        raise NotImplementedError

    def _listed_ids(self) -> FromClause:
        """The bound JSON parameter `ids` as a table with the column `record_id`."""
        raise NotImplementedError

    def _looked_up(self, table: Table, statement: Select[Any]) -> Select[Any]:
        """The statement, made to look rows up in the primary key."""
        del table
        return statement

    def _in_order(self, table: Table, statement: Select[Any]) -> Select[Any]:
        """The statement, made to look up the rows of `table` for each row that is listed."""
        del table
        return statement

    def _changed(self, table: Table, statement: S) -> S:
        """The same for a change."""
        del table
        return statement

    def _or_nothing(self, statement: Select[Any], names: Sequence[str]) -> Insert:
        """An INSERT of the rows of `statement`, but for keys that are there."""
        raise NotImplementedError

    def _or_change(self, statement: Select[Any], names: Sequence[str]) -> Insert:
        """An INSERT of the rows of `statement`, which change keys that are there."""
        raise NotImplementedError

    # -- posts ------------------------------------------------------------------------------------

    def add(
        self,
        connection: Connection,
        table_name: str,
        queue_name: str,
        *,
        rows: Sequence[KeyRow],
        taken_by: str,
        look: datetime | None = None,
    ) -> list[Row[Any]] | None:
        """Take keys that nobody has: they are `taken_by` this post then. Lock all of them.

        They must be in order. It waits for other transactions that have just taken one. Those that
        are kept for a time are looked after from the date `look` on.

        Returns:
            The rows of all keys; None if all of them were free.
        """
        given: dict[str, Any] = {
            "table_name": table_name,
            "queue_name": queue_name,
            "taken_by": taken_by,
        }
        added = 0
        for batch in _batches(rows):
            values = {**given, "batch": _encoded(batch), "look": look}
            added += connection.execute(self._add, values).rowcount
        if added == len(rows):
            return None
        return self.find(
            connection, table_name, queue_name, keys=[row.entry_key for row in rows], lock=True
        )

    def make(
        self,
        connection: Connection,
        table_name: str,
        queue_name: str,
        *,
        keys: Sequence[str],
        taken_by: str,
        look: datetime,
    ) -> None:
        """Enter keys that nobody has, and that nobody is to have yet: they can be locked then.

        Those that are free still at the date `look` are deleted.
        """
        given = {"table_name": table_name, "queue_name": queue_name, "taken_by": taken_by}
        for batch in _batches(keys):
            rows = [KeyRow(key, None, PERIOD, None) for key in batch]
            connection.execute(self._add, {**given, "batch": _encoded(rows), "look": look})

    def put(
        self,
        connection: Connection,
        table_name: str,
        queue_name: str,
        *,
        rows: Sequence[KeyRow],
        taken_by: str,
        look: datetime,
    ) -> None:
        """Give keys that this transaction has locked to the entries in `rows`.

        Those that are kept for a time after the end are looked after from the date `look` on.
        """
        given = {
            "table_name": table_name,
            "queue_name": queue_name,
            "taken_by": taken_by,
            "look": look,
        }
        for batch in _batches(rows):
            connection.execute(self._put, {**given, "batch": _encoded(batch)})

    @memoized_property
    def _rows(self) -> dict[str, ColumnElement[Any]]:
        batch = self._listed()
        look = bindparam("look", type_=UtcDateTime())
        return {
            "table_name": bindparam("table_name", type_=String()),
            "queue_name": bindparam("queue_name", type_=String()),
            "taken_by": bindparam("taken_by", type_=String()),
            **{column.name: column for column in batch.c},
            "ended_state": null(),
            "ended_date": null(),
            "look_date": case((batch.c.keep == literal(PERIOD), look), else_=null()),
            "requeue": null(),
        }

    @memoized_property
    def _source(self) -> Select[Any]:
        return select(*(value.label(name) for name, value in self._rows.items()))

    @memoized_property
    def _add(self) -> Insert:
        added = self._or_nothing(self._source, list(self._rows))
        return added.execution_options(preserve_rowcount=True)

    @memoized_property
    def _put(self) -> Executable:
        return self._or_change(self._source, list(self._rows))

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
        found = list[Row[Any]]()
        locking = Locking(lock, skip_locked, nowait)
        statement = self._finds.get(locking)
        if statement is None:
            statement = self._finds[locking] = self._finding(locking)
        given = {"table_name": table_name, "queue_name": queue_name}
        for batch in _batches(sorted(set(keys))):
            found += connection.execute(
                statement, {**given, "keys": self._listed_values(batch)}
            ).all()
        return found

    def _listed_values(self, values: Sequence[str | int]) -> Any:
        """The value of the parameter `keys`, or `ids`."""
        return encoded(values)

    def _by_ids(self, table: Table, statement: Select[Any]) -> Select[Any]:
        """The statement on the rows whose ids are in the parameter `ids`."""
        listed = self._listed_ids()
        joined = listed.join(table, table.c.record_id == listed.c.record_id)
        return self._in_order(table, statement).select_from(joined)

    def _finding(self, locking: Locking) -> Select[Any]:
        table, listed = self.table, self._listed_keys()
        joined = listed.join(table, and_(*self._is(listed.c.entry_key)))
        statement = self._in_order(table, select(table)).select_from(joined)
        return locking.of(statement.order_by(listed.c.entry_key), table)

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

    # -- endings ----------------------------------------------------------------------------------

    def change(
        self,
        connection: Connection,
        table_name: str,
        queue_name: str,
        keys: Sequence[str],
        values: Mapping[str, Any],
    ) -> None:
        """Write columns of keys that this transaction has locked."""
        for batch in _batches(keys):
            statement = self._changed(self.table, update(self.table))
            connection.execute(
                statement.where(*self._are(table_name, queue_name, batch)).values(**values)
            )

    def remove(
        self, connection: Connection, table_name: str, queue_name: str, keys: Sequence[str]
    ) -> int:
        """Delete keys, and return how many there were."""
        removed = 0
        for batch in _batches(keys):
            statement = self._changed(self.table, delete(self.table))
            chosen = statement.where(*self._are(table_name, queue_name, batch))
            removed += connection.execute(chosen).rowcount
        return removed

    # -- maintenance and reading ------------------------------------------------------------------

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
        if after is not None:
            queue, key = after
            later = (table.c.queue_name == queue) & (table.c.entry_key > key)
            statement = statement.where(
                table.c.queue_name >= queue, or_(table.c.queue_name > queue, later)
            )
        ordered = statement.order_by(
            table.c.table_name, table.c.queue_name, table.c.entry_key
        ).limit(limit)
        return list(connection.execute(ordered))

    # -- entries ----------------------------------------------------------------------------------

    def states(
        self, connection: Connection, table: Table, *, ids: Sequence[int], dates: bool
    ) -> dict[int, Row[Any]]:
        """Where entries of a main or history table stand, by id. It locks nothing.

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
        for batch in _batches(sorted(set(ids))):
            rows = connection.execute(statement, {"ids": self._listed_values(batch)}).all()
            found |= {row[0]: row for row in rows}
        return found

    def lock_waiting(
        self, connection: Connection, main: Table, *, ids: Sequence[int]
    ) -> dict[int, Row[Any]]:
        """Lock those of `ids` that wait, without waiting for any; (record_id, headers) by id.

        An entry that another transaction holds is on its way to run, mostly.
        """
        found = dict[int, Row[Any]]()
        for batch in _batches(sorted(set(ids))):
            statement = self._looked_up(main, select(main.c.record_id, main.c.headers)).where(
                main.c.record_id.in_(batch), main.c.processing_state.in_([AVAILABLE, WAITING])
            )
            locked = statement.order_by(main.c.record_id).with_for_update(skip_locked=True)
            found |= {row.record_id: row for row in connection.execute(locked)}
        return found


_STATE_COLUMNS = ("record_id", "processing_state", "error_count")


def _batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), IDS):
        yield items[start : start + IDS]


def _encoded(rows: Sequence[KeyRow]) -> str:
    return encoded([msgspec.structs.asdict(row) for row in rows])
