"""PostgreSQL through psycopg 3: one statement posts, one claims, one finishes."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from socket import socket
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    Table,
    any_,
    bindparam,
    cast,
    delete,
    event,
    func,
    insert,
    select,
    text,
    true,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import REGCLASS
from sqlalchemy.engine.interfaces import Dialect as SqlalchemyDialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.types import TypeEngine
from sqlalchemy.util import memoized_property

from sql.dialect import Dialect, Notifier, check_socket, keep_alive
from sql.hot_path import OURS, Use, cut, driver_errors, send, use_of
from sql.limits import Limits, milliseconds
from sql.postgresql import notify, settling
from sql.postgresql.bulk import PostgreSQLBulkReads
from sql.postgresql.capabilities import POSTGRESQL
from sql.postgresql.raw import PostgreSQLRaw
from sql.settling import Ended, OpenDatabase
from sql.statements import Statements
from sql.statements.outcomes import FINISH_COLUMNS, OUTCOME_COLUMNS, Batch, Ending, encoded
from sql.tables import ENTRY_COLUMNS
from sql.types import UtcDateTime
from sql.watching import Heard, Watch

if TYPE_CHECKING:
    from sql.postgresql.libpq import Inserts  # needs the driver

T = TypeVar("T")

TRANSIENT = frozenset({"40001", "40P01", "55P03"})
"""serialization_failure, deadlock_detected, lock_not_available."""
READ_ONLY = "25006"
"""read_only_sql_transaction."""
IDLE = 0
"""PQTRANS_IDLE: no transaction, and no statement whose answer is outstanding."""

COPY_FROM = 20
"""Entries of one post from which COPY beats a multi-row INSERT."""
MOST_BY_JSON, SMALL = 1_000, 500
"""Entries of one post that are sent as one parameter at most, and the characters that they have on average, at most.

Larger ones are not, nor payloads of bytes: to read JSON costs the server more for each character.
"""

_NOTIFY = select(func.pg_notify(bindparam("channel"), bindparam("payload")))

_INDEX_PROGRESS = text(
    "SELECT CAST(blocks_done AS float) / NULLIF(blocks_total, 0) FROM pg_stat_progress_create_index "
    "WHERE datname = current_database()"
)

_RETURNING = " RETURNING record_id"
INSERTS = "stickybus_inserts"
"""In the `info` of a connection that only inserts: its `libpq.Inserts`."""

_LOCK_SPACE = 0x5B15
"""First key of our advisory locks, apart from those of the user's program."""


class PostgreSQLStatements(Statements):
    """Statements of PostgreSQL; see the module."""

    capabilities = POSTGRESQL

    @memoized_property
    def _insert(self) -> Any:
        return insert(self.main).returning(self.main.c.record_id, sort_by_parameter_order=True)

    def insert(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """In one statement: it may be a transaction of its own. One that reserves ids before it changes no row."""
        driver: Any = connection.connection.dbapi_connection
        if type(driver).__module__.partition(".")[0] != "psycopg":
            # Texts for psycopg, and its COPY, are nothing for a user's connection by another driver.
            return list(connection.execute(self._insert, list(rows)).scalars())
        if len(rows) == 1:
            names, [values] = self._insert_values(connection, rows)
            return self._inserted(connection, self._insert_text(connection, names) + _RETURNING, values)
        if len(rows) <= MOST_BY_JSON and all(map(_suits_json, rows)) and _size(rows) <= SMALL * len(rows):
            return self._insert_json(connection, rows)
        if "record_id" not in rows[0]:
            ids = self.reserve(connection, len(rows))
            rows = [{"record_id": record_id, **row} for record_id, row in zip(ids, rows, strict=True)]
        names, many = self._insert_values(connection, rows)
        if len(rows) < COPY_FROM:
            statement = self._insert_text(connection, names, len(rows))
            send(connection, statement, tuple(chain.from_iterable(many)))
        else:
            copying = f"COPY {_full_name(connection, self.main)} ({', '.join(names)}) FROM STDIN"
            with driver_errors(connection, copying), driver.cursor() as cursor, cursor.copy(copying) as copy:
                for row in many:
                    copy.write_row(row)
        return [row["record_id"] for row in rows]

    def _inserted(self, connection: Connection, statement: str, values: Sequence[Any]) -> list[int]:
        """The ids that an INSERT returns."""
        if use_of(connection) is not Use.INSERTS:
            return [record_id for [record_id] in send(connection, statement, values).fetchall()]
        inserts: Inserts = connection.info[INSERTS]
        try:
            return inserts.run(statement, values)
        except BaseException as error:
            cut(connection, statement, error)
            raise

    def _insert_json(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """What the rows share as parameters, and the rest as JSON.

        COPY waits for a client that writes row by row, and has two more round trips.
        """
        shared, own = dict[str, Any](), dict[str, Sequence[Any]]()
        for name, column in zip(rows[0], zip(*[row.values() for row in rows], strict=True), strict=True):
            if name == "event_json" or column.count(column[0]) < len(rows):
                own[name] = column
            elif column[0] is not None:
                shared[name] = column[0]
        known = (tuple(shared), tuple(own))
        statement = self._insert_texts.get(known)
        if statement is None:
            marks = ", ".join([self.mark] * len(shared) + list(own))
            fields = _fields({name: self.main.c[name].type for name in own})
            # Ids are given in the order of a SELECT that has one.
            statement = self._insert_texts[known] = (
                f"INSERT INTO {_full_name(connection, self.main)} ({', '.join((*shared, *own))}) SELECT {marks} "
                f"FROM ROWS FROM (json_to_recordset(CAST({self.mark} AS json)) AS ({fields})) "
                f"WITH ORDINALITY AS fields({', '.join((*own, 'place'))}) ORDER BY place{_RETURNING}"
            )
        batch = [dict(zip(own, values)) for values in zip(*own.values())]  # noqa: B905 -- of one length, and many
        ids = self._inserted(connection, statement, (*shared.values(), encoded(batch)))
        return list(own["record_id"]) if "record_id" in own else sorted(ids)

    @memoized_property
    def _reserve(self) -> Any:
        named = cast(func.pg_get_serial_sequence(bindparam("table"), "record_id"), REGCLASS).label("sequence")
        # Materialized: else the name would be looked up again for each number, at five times the price.
        source = select(named).cte("source").prefix_with("MATERIALIZED")
        numbers = func.generate_series(1, bindparam("count")).table_valued("number")
        return select(func.array_agg(func.nextval(source.c.sequence))).select_from(
            source.join(numbers, true())
        )

    def reserve(self, connection: Connection, count: int) -> list[int]:
        table = _full_name(connection, self.main)
        return sorted(connection.execute(self._reserve, {"table": table, "count": count}).scalar_one())

    def _has_id(self, record_id: ColumnElement[int]) -> ColumnElement[bool]:
        # Not as an equality, by which both sides could be merged: where statistics say that the table is empty, the
        # planner would rather walk the whole primary key, dead entries included, than look each row up.
        return self.main.c.record_id == any_(postgresql.array([record_id]))

    def _batch(self) -> FromClause:
        source = text(
            f"SELECT * FROM json_to_recordset(CAST(:batch AS json)) AS fields({_fields(FINISH_COLUMNS)})"
        )
        return source.columns(**FINISH_COLUMNS).subquery("batch")

    def _encode(self, endings: Sequence[Ending]) -> str:
        return encoded(endings)

    @memoized_property
    def _finish(self) -> Any:
        past, batch = self.past, self._batch()
        outcome = {name: batch.c[name].label(f"outcome_{name}") for name in OUTCOME_COLUMNS}
        finished = delete(self.main).where(*self._held(batch))
        gone = finished.returning(*self.columns, *outcome.values()).cte("gone")
        values = {name: gone.c[name] for name in ENTRY_COLUMNS} | {
            name: gone.c[label.name] for name, label in outcome.items()
        }
        moved = insert(past).from_select(list(values), select(*values.values()))
        return moved.returning(past.c.record_id)

    def finish(self, connection: Connection, *, owner: str, batch: Batch) -> set[int]:
        rows = self._rows(connection, self._finish, {"batch": batch.text, "owner": owner})
        return {row[0] for row in rows}

    def empty_history(self, connection: Connection, recent_since: datetime) -> int | None:
        connection.execute(text("SET LOCAL lock_timeout = '50ms'"))
        connection.execute(text("SET LOCAL enable_seqscan = on"))
        name = _full_name(connection, self.past)
        connection.execute(text(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE"))
        return self._empty_locked(connection, name, recent_since)


class PostgreSQL(Dialect):
    """PostgreSQL; see the module."""

    name = "postgresql"
    statements = PostgreSQLStatements
    capabilities = POSTGRESQL
    raw = PostgreSQLRaw()
    bulk = PostgreSQLBulkReads()

    def schema_of(self, connection: Connection, table_name: str) -> str | None:
        found = (
            "SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
            "WHERE pg_class.oid = to_regclass(:name)"
        )
        schema: str | None = connection.execute(
            text(found), {"name": _quoted(connection, table_name)}
        ).scalar()
        return schema

    def server(self, connection: Connection) -> str | None:
        """See `Dialect.server`: the cluster's own number, which its standbys share."""
        allowed = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')"
        if not connection.exec_driver_sql(allowed).scalar():
            return None
        return str(
            connection.exec_driver_sql("SELECT system_identifier FROM pg_control_system()").scalar_one()
        )

    def identity(self, connection: Connection) -> str:
        """See `Dialect.identity`: the server's address if it tells nothing else."""
        server = self.server(connection)
        address = "concat_ws(':', host(inet_server_addr()), current_setting('port'))"
        database = "(SELECT oid::text FROM pg_database WHERE datname = current_database())"
        answer = connection.exec_driver_sql(f"SELECT {address}, {database}, current_schema()").one()
        return "/".join(map(str, ("postgresql", server or answer[0], *answer[1:])))

    def connect_options(self, *, statement_timeout_seconds: float, application_name: str) -> dict[str, Any]:
        self._limits = Limits(statement_timeout_seconds)
        return {
            "connect_args": {
                "application_name": application_name,
                "connect_timeout": self._limits.connect,
            },
            "isolation_level": "READ COMMITTED",
        }

    def settled(self, database: OpenDatabase, ended: Ended) -> bool:
        return settling.settled(database, ended)

    def read_widely(self, engine: Engine) -> None:
        def configure(connection: Any, _record: object) -> None:
            connection.execute("SELECT set_config('enable_bitmapscan', 'on', false)")
            connection.commit()

        event.listen(engine, "connect", configure)

    def shares_sessions(self, engine: Engine) -> bool:
        from sql.postgresql.pooling import shares_sessions  # needs the driver

        return shares_sessions(engine, self._limits.answer)

    def prepare(self, engine: Engine) -> None:
        from sql.postgresql.libpq import Inserts, guard

        limits, use = self._limits, engine.get_execution_options()[OURS]
        settings = {
            "statement_timeout": milliseconds(limits.statement),
            "lock_timeout": milliseconds(limits.lock),
            # A process that is frozen in the middle of a transaction gives its locks back.
            "idle_in_transaction_session_timeout": milliseconds(limits.statement),
            "timezone": "UTC",
            "default_transaction_isolation": "read committed",
            # A plan made while the table was empty would be kept when it holds a million rows. An INSERT's is always
            # the same.
            "plan_cache_mode": "auto" if use is Use.INSERTS else "force_custom_plan",
            "enable_seqscan": "off",
            "enable_sort": "off",
            "enable_bitmapscan": "off",
            # What it turns off is priced so high that every statement with a scan of a small table would be compiled.
            "jit": "off",
        }
        statement = "SELECT " + ", ".join(
            f"set_config('{name}', '{value}', false)" for name, value in settings.items()
        )

        def configure(connection: Any, record: ConnectionPoolEntry) -> None:
            guard(connection, limits.answer)
            with socket(fileno=os.dup(connection.pgconn.socket)) as same:
                keep_alive(same, limits.statement)
            connection.execute(statement)
            connection.commit()
            if use is Use.INSERTS:
                record.info[INSERTS] = Inserts(connection)

        event.listen(engine, "connect", configure)
        event.listen(engine, "checkout", lambda driver, *_: self.check_open(driver))

    def check_open(self, driver: Any) -> None:
        check_socket(driver.pgconn.socket)

    def is_idle(self, driver: Any) -> bool:
        return bool(driver.pgconn.transaction_status == IDLE)

    def is_transient(self, error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlstate", None) in TRANSIENT

    def is_stale(self, error: BaseException) -> bool:
        return getattr(error, "sqlstate", None) == READ_ONLY

    def database_now(self, connection: Connection) -> datetime:
        now: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
        return now.astimezone(UTC)

    @contextmanager
    def named_lock(self, connection: Connection, name: str, *, wait: bool) -> Iterator[bool]:
        key = func.hashtext(name)
        take = func.pg_advisory_lock if wait else func.pg_try_advisory_lock
        had = connection.execute(select(take(_LOCK_SPACE, key))).scalar_one() is not False
        try:
            yield had
        finally:
            if had:
                connection.execute(select(func.pg_advisory_unlock(_LOCK_SPACE, key)))

    def _lock_limit(self, seconds: float) -> str:
        return f"SET lock_timeout = {milliseconds(seconds)}"

    def index_progress(self, connection: Connection) -> float | None:
        done: float | None = connection.execute(_INDEX_PROGRESS).scalar()
        return done

    def notify(self, connection: Connection, channel: str, payload: str) -> None:
        connection.execute(_NOTIFY, {"channel": channel, "payload": payload})

    def notifier(self, engine: Engine, channel: str, payload: str) -> Notifier:
        return notify.PostgreSQLNotifier(engine, channel, payload, self._limits.answer)

    def commits_of_others(self, engine: Engine, watch: Watch) -> Generator[Heard, None, None]:
        return notify.commits_of_others(engine, watch)


def _quoted(connection: Connection, name: str) -> str:
    return connection.dialect.identifier_preparer.quote(name)


def _full_name(connection: Connection, table: Table) -> str:
    return connection.dialect.identifier_preparer.format_table(table)


def _suits_json(row: Mapping[str, Any]) -> bool:
    # Of a NUL the driver tells; the server, which can't store it either, would quote the payload in its log.
    return row["event_bytes"] is None and row["event_json"] is not None and "\0" not in row["event_json"]


def _size(rows: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(row["event_json"]) + len(row.get("headers") or "") for row in rows)


def _fields(kinds: Mapping[str, TypeEngine[Any]]) -> str:
    """Names and types, as the definition of a record has them."""
    dialect: SqlalchemyDialect = postgresql.dialect()  # type: ignore[no-untyped-call]  # not typed there
    return ", ".join(
        f"{name} {'timestamptz' if isinstance(kind, UtcDateTime) else kind.compile(dialect=dialect)}"
        for name, kind in kinds.items()
    )
