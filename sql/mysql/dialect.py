"""MySQL through PyMySQL, and what MariaDB has in common with it: READ COMMITTED, ids first, then writes by sorted primary key.

InnoDB locks every index entry that it reads under a lock, so that the claim index must answer the whole ORDER BY:
the hint keeps it from being answered by a sort.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    Select,
    Table,
    bindparam,
    event,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.engine.interfaces import Dialect as SqlalchemyDialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import String, Text, TypeEngine
from sqlalchemy.util import memoized_property

from sql.dialect import Dialect, check_socket, keep_alive
from sql.hot_path import send
from sql.limits import Limits, milliseconds, whole
from sql.mysql import settling
from sql.mysql.bulk import MySQLBulkReads
from sql.mysql.capabilities import MYSQL
from sql.mysql.raw import MySQLRaw
from sql.settling import Ended, OpenDatabase
from sql.statements import Statements
from sql.statements.base import S
from sql.statements.claims import Claim
from sql.statements.outcomes import FINISH_COLUMNS
from sql.types import UtcDateTime

READ_ONLY = frozenset({(1290,), (1792,), (1836,)})
"""ER_OPTION_PREVENTS_STATEMENT (as --read-only does), ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION, ER_READ_ONLY_MODE."""
TRANSIENT = frozenset({1020, 1205, 1213})
"""ER_CHECKREAD (MariaDB's snapshot isolation), ER_LOCK_WAIT_TIMEOUT, ER_LOCK_DEADLOCK."""

IN_TRANSACTION = 1
"""SERVER_STATUS_IN_TRANS, of what the server says with each answer."""

_LONGEST_IDLE_SECONDS = 31_536_000
"""A year, the most that the servers take."""
_ROW_OVERHEAD = 1_000
"""Bytes of an entry's columns besides payload and headers, generously."""


class MySQLStatements(Statements):
    """MySQL; see the module."""

    capabilities = MYSQL
    _packet_limit: int | None = None

    def _by_id(self, table: Table, statement: S) -> S:
        return statement.prefix_with(_index_hint(table, "PRIMARY"))

    def _by_claims(self, statement: Select[Any]) -> Select[Any]:
        return statement.prefix_with(_index_hint(self.main, self.tables.claim_index))

    def _due(self, *columns: ColumnElement[Any]) -> Select[Any]:
        return super()._due(*columns).with_hint(self.main, f"FORCE INDEX ({self.tables.claim_index})")

    @memoized_property
    def _due_entries(self) -> Any:
        return self._due(*self.columns)

    @memoized_property
    def _take(self) -> Any:
        # The driver writes the list into the text.
        among = self.main.c.record_id.op("IN")(bindparam("ids"))
        return self._by_id(self.main, update(self.main)).where(among).values(**self._taken())

    def _remove(self, connection: Connection, ids: Sequence[int]) -> int:
        # A list of parameters would be compiled anew each time.
        table = connection.dialect.identifier_preparer.quote(self.main.name)
        marks = ", ".join([self.mark] * len(ids))
        statement = f"DELETE {_index_hint(self.main, 'PRIMARY')} FROM {table} WHERE record_id IN ({marks})"
        return int(send(connection, statement, tuple(ids)).rowcount)

    def claim(self, connection: Connection, claim: Claim) -> list[Sequence[Any]]:
        given = claim.parameters()
        rows = self._rows(connection, self._due_entries, given)
        if rows:
            ids = sorted(row[0] for row in rows)
            self._change(connection, self._take, {**given, "ids": ids})
        return rows

    def _batch(self) -> FromClause:
        fields = ", ".join(
            f"{name} {_written(kind)} PATH '$[{place}]'"
            for place, (name, kind) in enumerate(FINISH_COLUMNS.items())
        )
        source = text(f"SELECT * FROM JSON_TABLE(:batch, '$[*]' COLUMNS ({fields})) AS fields")
        return source.columns(**FINISH_COLUMNS).subquery("batch")

    def _looked_up(self, statement: Select[Any]) -> Select[Any]:
        # A scan, which the optimiser prefers while the table is small, waits for every row that another transaction
        # has locked: entries posted in a transaction that stays open would hold up all outcomes. In a caller's
        # REPEATABLE READ it would lock all rows, and the gap that new ones go into.
        hinted = statement.prefix_with(_index_hint(self.main, "PRIMARY"), "STRAIGHT_JOIN")
        return hinted.with_hint(self.main, "FORCE INDEX (PRIMARY)")

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
            self._packet_limit = _packet_limit(connection)
        # Escaping can double a text.
        return self._packet_limit // 2 - _ROW_OVERHEAD

    def _insert_chunk(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """InnoDB gives a multi-row INSERT of a known size ids without gaps, in every lock mode for auto-increments."""
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


class MySQL(Dialect):
    """MySQL; see the module."""

    name = "mysql"
    statements = MySQLStatements
    capabilities = MYSQL
    raw = MySQLRaw()
    bulk = MySQLBulkReads()
    _newer_settings = ""
    """More of them, in a comment that only a server of a version that knows them reads."""

    def largest_statement(self, connection: Connection) -> int:
        return _packet_limit(connection)

    def server(self, connection: Connection) -> str:
        """See `Dialect.server`: its own id, which MariaDB and MySQL call by different names; older ones have none."""
        names = "('server_uid', 'server_uuid', 'hostname', 'port')"
        shown = connection.exec_driver_sql(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN {names}").all()
        said = {name.lower(): value for name, value in shown}
        return said.get("server_uid") or said.get("server_uuid") or f"{said['hostname']}:{said['port']}"

    def identity(self, connection: Connection) -> str:
        database = connection.exec_driver_sql("SELECT DATABASE()").scalar()
        return f"mysql/{self.server(connection)}/{database}"

    def connect_options(self, *, statement_timeout_seconds: float, application_name: str) -> dict[str, Any]:
        del application_name
        self._limits = Limits(statement_timeout_seconds)
        return {
            "connect_args": {
                "charset": "utf8mb4",
                "connect_timeout": self._limits.connect,
                "read_timeout": self._limits.answer,
                "write_timeout": self._limits.answer,
            },
            "isolation_level": "READ COMMITTED",
        }

    @property
    def reached_as(self) -> frozenset[str]:
        return frozenset({"mysql", "mariadb"})

    def settled(self, database: OpenDatabase, ended: Ended) -> bool:
        return settling.settled(database, ended)

    def recognise(self, engine: Engine) -> str:
        with engine.connect():
            pass  # the first connection tells SQLAlchemy which of the two it is
        return "mariadb" if getattr(engine.dialect, "is_mariadb", False) else self.name

    def prepare(self, engine: Engine) -> None:
        settings = {"time_zone": "'+00:00'"} | self._time_outs(self._limits)
        statement = (
            "SET " + ", ".join(f"{name} = {value}" for name, value in settings.items()) + self._newer_settings
        )
        isolation = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
        limits = self._limits

        def configure(connection: Any, _record: object) -> None:
            # For connections too that are made in another engine's way; PyMySQL has no public name to set them by.
            connection._read_timeout = limits.answer  # noqa: SLF001
            connection._write_timeout = limits.answer  # noqa: SLF001
            keep_alive(connection._sock, limits.statement)  # noqa: SLF001
            with connection.cursor() as cursor:
                cursor.execute(statement)
                cursor.execute(isolation)

        event.listen(engine, "connect", configure)
        event.listen(engine, "checkout", lambda driver, *_: self.check_open(driver))

    def _time_outs(self, limits: Limits) -> dict[str, str]:
        """The server's settings for a session."""
        lock = str(whole(limits.lock))
        # Of MySQL's statements it limits only those that read.
        reading = str(milliseconds(limits.statement))
        return {
            "innodb_lock_wait_timeout": lock,
            "lock_wait_timeout": lock,
            "max_execution_time": reading,
            # A process that is frozen in the middle of a transaction gives its locks back. MySQL has no limit for
            # transactions alone: a connection that nobody uses for as long ends, too, and is replaced when needed.
            "wait_timeout": str(whole(limits.statement)),
        }

    def check_open(self, driver: Any) -> None:
        check_socket(driver._sock.fileno())  # noqa: SLF001 -- its socket has no public name

    def is_idle(self, driver: Any) -> bool:
        return not driver.server_status & IN_TRANSACTION

    def may_have_cut_off(self, error: BaseException) -> bool:
        # A time limit's error may have come between a statement and its answer, and PyMySQL does not tell.
        return not isinstance(error, DBAPIError)

    def is_transient(self, error: DBAPIError) -> bool:
        arguments: tuple[Any, ...] = getattr(error.orig, "args", ())
        return bool(arguments) and arguments[0] in TRANSIENT

    def is_stale(self, error: BaseException) -> bool:
        return getattr(error, "args", ())[:1] in READ_ONLY

    def database_now(self, connection: Connection) -> datetime:
        now: datetime = connection.execute(select(func.utc_timestamp(6))).scalar_one()
        return now.replace(tzinfo=UTC)

    def _lock_limit(self, seconds: float) -> str:
        return f"SET SESSION lock_wait_timeout = {whole(seconds)}"

    @contextmanager
    def named_lock(self, connection: Connection, name: str, *, wait: bool) -> Iterator[bool]:
        # These locks are the whole server's.
        full = f"{connection.engine.url.database}:{name}"[:64]
        seconds = whole(self._limits.statement) if wait else 0
        had = connection.execute(select(func.get_lock(full, seconds))).scalar_one() == 1
        if wait and not had:
            raise TimeoutError(
                f"another session has held the lock {full!r} for {seconds} s. Nothing was done."
            )
        try:
            self._keep_idle(connection, keep=had)
            yield had
        finally:
            if had:
                connection.execute(select(func.release_lock(full)))
                self._keep_idle(connection, keep=False)

    def _keep_idle(self, connection: Connection, *, keep: bool) -> None:
        """Let a session that holds a lock be silent for as long as its work lasts, or no longer."""
        seconds = _LONGEST_IDLE_SECONDS if keep else whole(self._limits.statement)
        connection.execute(text(f"SET SESSION wait_timeout = {seconds}"))


def _index_hint(table: Table, index: str) -> str:
    """Unlike FORCE INDEX it allows no scan of the index, and is no error if there is none; a comment to MariaDB."""
    return f"/*+ INDEX({table.name} {index}) */"


def _packet_limit(connection: Connection) -> int:
    return int(connection.execute(text("SELECT @@max_allowed_packet")).scalar_one())


def _written(kind: TypeEngine[Any]) -> str:
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
        _ROW_OVERHEAD + len(row.get("event_bytes") or b"") + sum(len(text.encode()) for text in texts if text)
    )
