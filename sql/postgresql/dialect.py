"""PostgreSQL through psycopg 3: sessions, locks and errors."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from socket import socket
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    event,
    func,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from sql.dialect import MARK, Dialect
from sql.drivers.hot_path import OURS, Use
from sql.drivers.sockets import check_socket, keep_alive
from sql.postgresql import notify, settling
from sql.postgresql.bulk import PostgreSQLBulkReads
from sql.postgresql.capabilities import POSTGRESQL
from sql.postgresql.inserts import INSERTS
from sql.postgresql.keys import PostgreSQLKeys
from sql.postgresql.partitions import PostgreSQLPartitions
from sql.postgresql.raw import PostgreSQLRaw
from sql.postgresql.statements import PostgreSQLStatements
from sql.postgresql.work import PostgreSQLWorkTasks
from sql.settling import Ended, OpenDatabase
from sql.statements.base import quoted
from sql.time_limits import TimeLimits, milliseconds
from sql.watching import Heard, Hint, Notifier, Watch

TRANSIENT = frozenset({"40001", "40P01", "55P03"})
"""serialization_failure, deadlock_detected, lock_not_available."""
LOCK_REFUSED = "55P03"
"""lock_not_available."""
UNIQUE_VIOLATION = "23505"
READ_ONLY = "25006"
"""read_only_sql_transaction."""
IDLE = 0
"""PQTRANS_IDLE: no transaction, and no statement whose answer is outstanding."""

_PLANS = {
    # A plan made while the table was empty would be kept when it holds a million rows.
    "plan_cache_mode": "force_custom_plan",
    "enable_seqscan": "off",
    "enable_sort": "off",
    "enable_bitmapscan": "off",
    # The plans turned off are priced so high that every statement with a scan of a small table
    # would be compiled.
    "jit": "off",
}
"""Settings for the library's own statements, which all seek by an index."""

_LIMIT_WAITS = text(
    "WITH former AS MATERIALIZED (SELECT current_setting('lock_timeout') AS wait) "
    "SELECT wait FROM former, LATERAL set_config('lock_timeout', :wait, wait IS NOT NULL)"
)
"""Limits the waits for locks in this transaction, and answers with the former limit."""

_INDEX_PROGRESS = text(
    "SELECT CAST(blocks_done AS float) / NULLIF(blocks_total, 0) FROM "
    "pg_stat_progress_create_index WHERE datname = current_database()"
)

_LOCK_SPACE = 0x5B15
"""First key of our advisory locks, apart from those of the user's program."""

_LOCK_HOLDER = text(
    "SELECT concat(coalesce(nullif(application_name, ''), usename), ' (session ', pid, "
    "' from ' || host(client_addr), ')') FROM pg_locks JOIN pg_stat_activity USING (pid) "
    "WHERE locktype = 'advisory' AND granted AND pg_locks.database = "
    "(SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND classid = CAST(:space AS oid) AND objid = CAST(hashtext(:name) AS oid)"
)


def _set(settings: Mapping[str, object], *, local: bool) -> str:
    """The statement that sets them, for the session or the transaction."""
    return "SELECT " + ", ".join(
        f"set_config('{name}', '{value}', {str(local).lower()})" for name, value in settings.items()
    )


class PostgreSQL(Dialect):
    """PostgreSQL's ways."""

    name = "postgresql"
    own_statements: tuple[type[object], ...] = (
        PostgreSQLStatements,
        PostgreSQLKeys,
        PostgreSQLWorkTasks,
    )
    capabilities = POSTGRESQL
    raw = PostgreSQLRaw()
    bulk = PostgreSQLBulkReads()
    partitions = PostgreSQLPartitions()

    def schema_of(self, connection: Connection, table_name: str) -> str | None:
        found = (
            "SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
            "WHERE pg_class.oid = to_regclass(:name)"
        )
        schema: str | None = connection.execute(
            text(found), {"name": quoted(connection, table_name)}
        ).scalar()
        return schema

    def server(self, connection: Connection) -> str | None:
        """See `Dialect.server`: the cluster's own number, which its standbys share."""
        allowed = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')"
        if not connection.exec_driver_sql(allowed).scalar():
            return None
        return str(
            connection.exec_driver_sql(
                "SELECT system_identifier FROM pg_control_system()"
            ).scalar_one()
        )

    def identity(self, connection: Connection) -> str:
        """See `Dialect.identity`: the server's address if it tells nothing else."""
        server = self.server(connection)
        address = "concat_ws(':', host(inet_server_addr()), current_setting('port'))"
        database = "(SELECT oid::text FROM pg_database WHERE datname = current_database())"
        answer = connection.exec_driver_sql(f"SELECT {address}, {database}, current_schema()").one()
        return "/".join(map(str, ("postgresql", server or answer[0], *answer[1:])))

    def connect_options(
        self, *, statement_timeout_seconds: float, application_name: str
    ) -> dict[str, Any]:
        self._limits = TimeLimits(statement_timeout_seconds)
        return {
            "connect_args": {
                "application_name": application_name,
                "connect_timeout": self._limits.connect,
            },
            "isolation_level": "READ COMMITTED",
            # Else each pool would ask the server for the type hstore, which our tables don't have.
            "use_native_hstore": False,
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
            "datestyle": "ISO",  # the only one that psycopg reads
            "default_transaction_isolation": "read committed",
        }
        if use is not Use.LENT:  # a user's statements want the plans that the server finds best
            settings |= _PLANS
        if use is Use.INSERTS:
            settings["plan_cache_mode"] = "auto"  # an INSERT's plan is always the same
        statement = _set(settings, local=False)

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

    def unmark(self, connection: Connection) -> None:
        """See `Dialect.unmark`. One round trip: texts without parameters may be several."""
        connection.exec_driver_sql(f"RELEASE SAVEPOINT {MARK}; {_set(_PLANS, local=True)}")

    def check_open(self, driver: Any) -> None:
        check_socket(driver.pgconn.socket)

    def is_idle(self, driver: Any) -> bool:
        return bool(driver.pgconn.transaction_status == IDLE)

    def is_transient(self, error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlstate", None) in TRANSIENT

    def is_duplicate(self, error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlstate", None) == UNIQUE_VIOLATION

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

    def lock_holder(self, connection: Connection, name: str) -> str | None:
        found: str | None = connection.execute(
            _LOCK_HOLDER, {"space": _LOCK_SPACE, "name": name}
        ).scalar()
        return found

    @contextmanager
    def lock_waits(self, connection: Connection, seconds: float) -> Iterator[None]:
        """See `Dialect.lock_waits`. A block that raises is undone, and the setting with it."""
        given = {"wait": f"{milliseconds(seconds)}ms"}
        before = connection.execute(_LIMIT_WAITS, given).scalar_one()
        yield
        connection.execute(_LIMIT_WAITS, {"wait": before})

    def is_lock_refusal(self, error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlstate", None) == LOCK_REFUSED

    def _lock_limit(self, seconds: float) -> str:
        return f"SET lock_timeout = {milliseconds(seconds)}"

    def index_progress(self, connection: Connection) -> float | None:
        done: float | None = connection.execute(_INDEX_PROGRESS).scalar()
        return done

    def notify(self, connection: Connection, hint: Hint) -> None:
        notify.tell_at_commit(connection, hint)

    def notifier(self, engine: Engine, channel: str) -> Notifier:
        return notify.PostgreSQLNotifier(engine, channel, self._limits.answer)

    def commits_of_others(self, engine: Engine, watch: Watch) -> Generator[Heard, None, None]:
        return notify.commits_of_others(engine, watch)
