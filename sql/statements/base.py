"""The base of all statements on one pair of tables: the tables, states and counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    FromClause,
    Select,
    Table,
    Update,
    bindparam,
    case,
    literal,
    null,
    select,
)

from sql.capabilities import Capabilities
from sql.drivers.hot_path import Prepared, Statement, driver_errors, send
from sql.tables import ENTRY_COLUMNS, EntryTables, in_schema, queue_replays

S = TypeVar("S", Update, Delete)
Id = TypeVar("Id", int, str)

AVAILABLE = "AVAILABLE"
WAITING = "WAITING"
IN_PROCESSING = "IN_PROCESSING"
PROCESSED = "PROCESSED"
FAILED = "FAILED"
REAPED = "REAPED"

LARGEST_COUNT = 2**31 - 1
"""The largest value of a count's column."""


IDS = 5_000
"""The most ids that a statement names.

A protocol's limit, or a planner's memory, is at 32,000 or more.
"""


def batches(ids: Iterable[Id]) -> list[list[Id]]:
    """The ids, or names, each once and ascending, as many together as a statement names."""
    ordered = sorted(set(ids))
    return [ordered[start : start + IDS] for start in range(0, len(ordered), IDS)]


def raised(count: int) -> int:
    """The count after `count`.

    The largest is followed by 0: a row written by hand must not fail its whole batch.
    """
    return count + 1 if count < LARGEST_COUNT else 0


def raised_column(count: ColumnElement[int]) -> ColumnElement[int]:
    """As `raised`, computed by the database."""
    return case((count < LARGEST_COUNT, count + 1), else_=0)


def due_since(entries: FromClause) -> ColumnElement[datetime]:
    """The date on which an entry became due.

    The head start of a priority puts its effective date before the post.
    """
    posted, ordered = entries.c.created_date, entries.c.effective_date
    return case((ordered < posted, posted), else_=ordered)


def fresh(table: Table, lane: str) -> dict[str, Any]:
    """The columns of a copy of `table`'s rows that anybody may claim from `lane`.

    The copy gets a new id.
    """
    return {name: table.c[name] for name in ENTRY_COLUMNS if name != "record_id"} | {
        "processing_state": literal(AVAILABLE),
        "processing_owner": null(),
        "processing_available_date": null(),
        "lane": literal(lane),
        "claim_count": literal(0),
    }


def lane_by_suspicion(table: Table, lane: str, suspect_lane: str) -> ColumnElement[str]:
    """The destination of an entry: `lane`, or `suspect_lane` if its process died of it once."""
    return case((table.c.crash_count > 0, literal(suspect_lane)), else_=literal(lane))


def quoted(connection: Connection, name: str) -> str:
    """A name, quoted for a text that goes to the driver."""
    return connection.dialect.identifier_preparer.quote(name)


def full_name(connection: Connection, table: Table) -> str:
    """A table's name with its schema, quoted for a text that goes to the driver."""
    return connection.dialect.identifier_preparer.format_table(table)


class HotStatements:
    """Sends statements that a node runs all the time by the driver's own cursor."""

    capabilities = Capabilities()

    def __init__(self) -> None:
        self._known = dict[Statement, Prepared]()

    def _rows(
        self, connection: Connection, statement: Statement, parameters: Mapping[str, Any]
    ) -> list[Sequence[Any]]:
        """The rows that a statement answers with."""
        prepared = self._prepared(connection, statement)
        with driver_errors(connection, prepared.text):
            rows = send(connection, prepared.text, prepared.bound(parameters)).fetchall()
        return rows if self.capabilities.answers_in_utc else prepared.read(rows)

    def _change(
        self, connection: Connection, statement: Statement, parameters: Mapping[str, Any]
    ) -> int:
        """The number of rows that a statement changes."""
        prepared = self._prepared(connection, statement)
        return int(send(connection, prepared.text, prepared.bound(parameters)).rowcount)

    def _prepared(self, connection: Connection, statement: Statement) -> Prepared:
        prepared = self._known.get(statement)
        if prepared is None:
            prepared = self._known[statement] = Prepared(statement, connection.dialect)
        return prepared


class PairStatements(HotStatements):
    """Stands on one pair of tables: `main` with live work, `past` with ended work."""

    def __init__(self, tables: EntryTables) -> None:
        super().__init__()
        self.tables = tables
        self.main = tables.main
        self.past = tables.history
        self.replays = in_schema(queue_replays, self.main.schema)
        self.columns = [self.main.c[name] for name in ENTRY_COLUMNS]

    @property
    def _whole(self) -> Sequence[ColumnElement[Any]]:
        """The columns that `_entries` has to be given: all columns of an entry, in any form."""
        return self.columns

    def _entries(
        self, connection: Connection, statement: Statement, parameters: Mapping[str, Any]
    ) -> list[Sequence[Any]]:
        """The rows of all of an entry's columns, by a statement that selects `_whole`."""
        return self._rows(connection, statement, parameters)

    def _has_id(self, record_id: ColumnElement[int]) -> ColumnElement[bool]:
        """Whether the id of another table's row is that of a row of the main table.

        It is looked up in the primary key.
        """
        return self.main.c.record_id == record_id

    def _among(self) -> ColumnElement[bool]:
        """Whether an entry's id is one of the bound ids."""
        return self.main.c.record_id.op("IN")(bindparam("ids"))  # the driver writes them down

    def _bound_ids(self, ids: list[int]) -> Any:
        """Ids as the driver takes them."""
        return ids

    def _by_id(self, table: Table, statement: S) -> S:
        """The same change of rows named by ids, made to look them up in the primary key."""
        del table
        return statement

    def _by_claims(self, statement: Select[Any]) -> Select[Any]:
        """The same read of a lane in claim order, made to use the index of claims."""
        return statement

    def _first_of(self, lane: str, limit: int) -> FromClause:
        """Ids, states and headers of the first entries of a lane."""
        main = self.main
        columns = main.c.record_id, main.c.processing_state, main.c.headers
        first = self._by_claims(select(*columns)).where(main.c.lane == lane)
        ordered = first.order_by(main.c.effective_date, main.c.record_id)
        return ordered.limit(limit).subquery("some_entries")

    def _as_joined(self, statement: Select[Any]) -> Select[Any]:
        """The same read, made to go from table to table in the order in which they are joined."""
        return statement
