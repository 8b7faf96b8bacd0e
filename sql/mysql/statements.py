"""MySQL's statements on entries, which MariaDB's extend: ids first, then writes by sorted key.

InnoDB locks every index entry that it reads under a lock, so that the claim index must answer the
whole ORDER BY: the hint keeps it from being answered by a sort.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import chain
from time import perf_counter
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    Table,
    Update,
    bindparam,
    text,
    update,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.engine.interfaces import Dialect as SqlalchemyDialect
from sqlalchemy.types import String, Text, TypeEngine
from sqlalchemy.util import memoized_property

from sql.drivers.hot_path import send
from sql.mysql import whole_rows
from sql.mysql.capabilities import MYSQL
from sql.mysql.stoppers import Walks, stopped
from sql.statements.base import S, full_name
from sql.statements.claims import Claim
from sql.statements.entries import Statements
from sql.statements.outcomes import FINISH_COLUMNS
from sql.types import UtcDateTime

_ROW_OVERHEAD = 1_000
"""Bytes of an entry's columns besides payload and headers, generously."""


class MySQLStatements(Statements):
    """All statements on a pair of tables."""

    capabilities = MYSQL
    _packet_limit: int | None = None

    def _by_id(self, table: Table, statement: S) -> S:
        return statement.prefix_with(_index_hint(table, "PRIMARY"))

    def _by_claims(self, statement: Select[Any]) -> Select[Any]:
        return statement.prefix_with(_index_hint(self.main, self.tables.claim_index))

    def _due(self, *columns: ColumnElement[Any]) -> Select[Any]:
        return (
            super()._due(*columns).with_hint(self.main, f"FORCE INDEX ({self.tables.claim_index})")
        )

    @memoized_property
    def _whole(self) -> Sequence[ColumnElement[Any]]:
        return whole_rows.whole(self.columns)

    def _entries(
        self, connection: Connection, statement: Any, parameters: Mapping[str, Any]
    ) -> list[Sequence[Any]]:
        return whole_rows.read(self._rows(connection, statement, parameters))

    @memoized_property
    def _due_entries(self) -> Select[Any]:
        return self._due(*self._whole)

    @memoized_property
    def _due_reserved(self) -> Select[Any]:
        return self._due(*self._whole).where(self._reserve_stands())

    @memoized_property
    def _owned_of_limit(self) -> Select[Any]:
        hint = f"FORCE INDEX ({self.tables.claim_index})"
        return self._by_claims(super()._owned_of_limit).with_hint(self.main, hint)

    @memoized_property
    def _take(self) -> Update:
        # The driver writes the list into the text.
        among = self.main.c.record_id.op("IN")(bindparam("ids"))
        return self._by_id(self.main, update(self.main)).where(among).values(**self._taken())

    def _remove(self, connection: Connection, ids: Sequence[int]) -> int:
        # A list of parameters would be compiled anew each time.
        table = full_name(connection, self.main)
        marks = ", ".join([self.mark] * len(ids))
        statement = (
            f"DELETE {_index_hint(self.main, 'PRIMARY')} FROM {table} WHERE record_id IN ({marks})"
        )
        return int(send(connection, statement, tuple(ids)).rowcount)

    @memoized_property
    def _walks(self) -> Walks:
        return Walks()

    def claim(self, connection: Connection, claim: Claim) -> list[Sequence[Any]]:
        due = self._due_entries if claim.reserve is None else self._due_reserved
        given = claim.parameters()
        if self._walks.are_far:
            table, behind = full_name(connection, self.main), claim.due_by + timedelta.resolution
            with stopped(connection, self._insert_rows, table, claim.lane, behind):
                rows = self._entries(connection, due, given)
            self._take_all(connection, given, rows)
            return rows
        began = perf_counter()
        rows = self._entries(connection, due, given)
        read = perf_counter()
        self._take_all(connection, given, rows)
        if 0 < len(rows) < claim.limit:
            self._walks.took(read - began, perf_counter() - read)
        return rows

    def _take_all(
        self, connection: Connection, given: Mapping[str, Any], rows: Sequence[Sequence[Any]]
    ) -> None:
        if rows:
            ids = sorted(row[0] for row in rows)
            self._change(connection, self._take, {**given, "ids": ids})

    def _batch(self) -> FromClause:
        fields = ", ".join(
            f"{name} {written(kind)} PATH '$[{place}]'"
            for place, (name, kind) in enumerate(FINISH_COLUMNS.items())
        )
        source = text(f"SELECT * FROM JSON_TABLE(:batch, '$[*]' COLUMNS ({fields})) AS fields")
        return source.columns(**FINISH_COLUMNS).subquery("batch")

    def _looked_up(self, statement: Select[Any]) -> Select[Any]:
        # A scan, which the optimiser prefers while the table is small, waits for every row that
        # another transaction has locked: entries posted in a transaction that stays open would hold
        # up all outcomes. In a caller's REPEATABLE READ it would lock all rows, and the gap that
        # new ones go into.
        hinted = statement.prefix_with(_index_hint(self.main, "PRIMARY"), "STRAIGHT_JOIN")
        return hinted.with_hint(self.main, "FORCE INDEX (PRIMARY)")

    def _as_joined(self, statement: Select[Any]) -> Select[Any]:
        # MariaDB 11 takes a few rows of a subquery for more than they are, and begins elsewhere.
        return statement.prefix_with("STRAIGHT_JOIN")

    def insert(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """Multi-row INSERTs, each well below the server's packet limit."""
        if len(rows) == 1:
            return self._insert_chunk(connection, rows)
        ids = list[int]()
        limit = self._largest_insert(connection)
        chunk, size = list[Mapping[str, Any]](), 0
        for row in rows:
            row_size = _size(row)
            if chunk and size + row_size > limit:
                ids += self._insert_chunk(connection, chunk)
                chunk, size = [], 0
            chunk.append(row)
            size += row_size
        return ids + self._insert_chunk(connection, chunk)

    def _largest_insert(self, connection: Connection) -> int:
        """Bytes of one INSERT."""
        if self._packet_limit is None:
            self._packet_limit = largest_statement(connection)
        # Escaping can double a text.
        return self._packet_limit // 2 - _ROW_OVERHEAD

    def _insert_chunk(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """Insert one chunk, and return its ids.

        In every lock mode for auto-increments, InnoDB gives a multi-row INSERT of a known size ids
        without gaps.
        """
        first = int(self._insert_rows(connection, rows).lastrowid)
        step = 1
        if len(rows) > 1:
            step = int(connection.execute(text("SELECT @@auto_increment_increment")).scalar_one())
        return [first + place * step for place in range(len(rows))]

    def _insert_rows(
        self, connection: Connection, rows: Sequence[Mapping[str, Any]], ending: str = ""
    ) -> Any:
        """One multi-row INSERT; see `send`."""
        names, values = self._insert_values(connection, rows)
        statement = self._insert_text(connection, names, len(rows)) + ending
        return send(connection, statement, tuple(chain.from_iterable(values)))


def largest_statement(connection: Connection) -> int:
    """Bytes of the largest statement that the server takes."""
    return int(connection.execute(text("SELECT @@max_allowed_packet")).scalar_one())


def _index_hint(table: Table, index: str) -> str:
    """A hint to look rows up in an index. MariaDB takes it for a comment.

    Unlike FORCE INDEX it allows no scan of the index, and a missing index is no error.
    """
    return f"/*+ INDEX({table.name} {index}) */"


def written(kind: TypeEngine[Any]) -> str:
    """A type as JSON_TABLE takes it."""
    if isinstance(kind, UtcDateTime):
        return "DATETIME(6)"
    # Else a text would pass through the database's default character set, which may be latin1.
    if isinstance(kind, Text):
        return "LONGTEXT CHARACTER SET utf8mb4"
    if isinstance(kind, String):
        return f"VARCHAR({kind.length}) CHARACTER SET utf8mb4"
    compiled: SqlalchemyDialect = mysql.dialect()
    return kind.compile(dialect=compiled)


def _size(row: Mapping[str, Any]) -> int:
    texts = (row.get("event_json"), row.get("headers"))
    return (
        _ROW_OVERHEAD
        + len(row.get("event_bytes") or b"")
        + sum(len(text.encode()) for text in texts if text)
    )
