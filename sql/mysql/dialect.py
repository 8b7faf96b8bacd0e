"""MySQL through PyMySQL: sessions in READ COMMITTED, locks and errors."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    event,
    func,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError, PendingRollbackError

from sql.dialect import Dialect
from sql.drivers.sockets import check_socket, keep_alive
from sql.mysql import insert_new as _insert_new  # noqa: F401 -- registers forms for the compiler
from sql.mysql import settling, sleepers, tls_errors
from sql.mysql.bulk import MySQLBulkReads
from sql.mysql.capabilities import MYSQL
from sql.mysql.keys import MySQLKeys
from sql.mysql.partitions import MySQLPartitions
from sql.mysql.raw import MySQLRaw
from sql.mysql.sessions import sessions_of
from sql.mysql.statements import MySQLStatements, largest_statement
from sql.mysql.work import MySQLWorkCounts, MySQLWorkDocs, MySQLWorkHistory, MySQLWorkTasks
from sql.settling import Ended, OpenDatabase
from sql.time_limits import TimeLimits, milliseconds, whole
from sql.watching import Heard, Notifier, Watch

TOO_LARGE = (1153,)
"""ER_NET_PACKET_TOO_LARGE."""
DUPLICATE = (1062,)
"""ER_DUP_ENTRY."""
READ_ONLY = frozenset({(1290,), (1792,), (1836,)})
"""Refusals of a server that only reads.

ER_OPTION_PREVENTS_STATEMENT (as --read-only does), ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION,
ER_READ_ONLY_MODE.
"""
LOCK_WAIT_TIMEOUT, LOCK_NOWAIT = 1205, 3572
TRANSIENT = frozenset({1020, LOCK_WAIT_TIMEOUT, 1213})
"""ER_CHECKREAD (MariaDB's snapshot isolation), ER_LOCK_WAIT_TIMEOUT, ER_LOCK_DEADLOCK."""

IN_TRANSACTION = 1
"""SERVER_STATUS_IN_TRANS, a bit of the status in each of the server's answers."""

_LOCK_NAME_LENGTH, _DIGEST_LENGTH = 64, 16
_LONGEST_WAIT_SECONDS = 1_000_000.0


class MySQL(Dialect):
    """MySQL's ways."""

    name = "mysql"
    own_statements: tuple[type[object], ...] = (
        MySQLStatements,
        MySQLKeys,
        MySQLWorkTasks,
        MySQLWorkHistory,
        MySQLWorkDocs,
        MySQLWorkCounts,
    )
    capabilities = MYSQL
    raw = MySQLRaw()
    bulk = MySQLBulkReads()
    partitions = MySQLPartitions()
    _newer_settings = ""
    """More of them, in a comment that only a server of a version that knows them reads."""
    _least_lock_limit = 1.0
    _statement_limit = "max_execution_time"
    """The setting that limits the time of a statement."""

    def schema_of(self, connection: Connection, table_name: str) -> str | None:
        """The database: a session of an application may `USE` another one meanwhile."""
        del table_name
        name: str | None = connection.exec_driver_sql("SELECT DATABASE()").scalar()
        return name

    def largest_statement(self, connection: Connection) -> int:
        return largest_statement(connection)

    def server(self, connection: Connection) -> str:
        """See `Dialect.server`: the server's id, which MariaDB and MySQL call by different names.

        Older servers have none.
        """
        names = "('server_uid', 'server_uuid', 'hostname', 'port')"
        shown = connection.exec_driver_sql(
            f"SHOW GLOBAL VARIABLES WHERE Variable_name IN {names}"
        ).all()
        said = {name.lower(): value for name, value in shown}
        return (
            said.get("server_uid")
            or said.get("server_uuid")
            or f"{said['hostname']}:{said['port']}"
        )

    def identity(self, connection: Connection) -> str:
        database = connection.exec_driver_sql("SELECT DATABASE()").scalar()
        return f"mysql/{self.server(connection)}/{database}"

    def connect_options(
        self, *, statement_timeout_seconds: float, application_name: str
    ) -> dict[str, Any]:
        del application_name
        self._limits = TimeLimits(statement_timeout_seconds)
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
            "SET "
            + ", ".join(f"{name} = {value}" for name, value in settings.items())
            + self._newer_settings
        )
        isolation = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
        limits = self._limits

        def configure(connection: Any, _record: object) -> None:
            # For connections too that are made in another engine's way; PyMySQL has no public name
            # to set them by.
            connection._read_timeout = limits.answer  # noqa: SLF001
            connection._write_timeout = limits.answer  # noqa: SLF001 -- as above
            keep_alive(connection._sock, limits.statement)  # noqa: SLF001 -- as above
            with connection.cursor() as cursor:
                cursor.execute(statement)
                cursor.execute(isolation)

        event.listen(engine, "connect", configure)
        event.listen(engine, "checkout", lambda driver, *_: self.check_open(driver))

    def _time_outs(self, limits: TimeLimits) -> dict[str, str]:
        """The server's settings for a session."""
        lock = str(whole(limits.lock))
        # Of MySQL's statements it limits only those that read.
        reading = str(milliseconds(limits.statement))
        return {
            "innodb_lock_wait_timeout": lock,
            "lock_wait_timeout": lock,
            self._statement_limit: reading,
            # A process that is frozen in the middle of a transaction gives its locks back. MySQL
            # has no limit for transactions alone: a connection that nobody uses for as long ends,
            # too, and is replaced when needed.
            "wait_timeout": str(whole(limits.statement)),
        }

    def check_open(self, driver: Any) -> None:
        check_socket(driver._sock.fileno())  # noqa: SLF001 -- its socket has no public name
        if driver._secure:  # noqa: SLF001 -- as above
            tls_errors.forget()

    def is_idle(self, driver: Any) -> bool:
        return not driver.server_status & IN_TRANSACTION

    def may_have_cut_off(self, error: BaseException) -> bool:
        # A time limit's error may have come between a statement and its answer, and PyMySQL does
        # not tell.
        return not isinstance(error, DBAPIError)

    def is_transient(self, error: DBAPIError) -> bool:
        arguments: tuple[Any, ...] = getattr(error.orig, "args", ())
        return bool(arguments) and arguments[0] in TRANSIENT

    def is_duplicate(self, error: DBAPIError) -> bool:
        return getattr(error.orig, "args", ())[:1] == DUPLICATE

    def is_stale(self, error: BaseException) -> bool:
        return getattr(error, "args", ())[:1] in READ_ONLY

    def is_too_large(self, error: BaseException) -> bool:
        return getattr(error, "args", ())[:1] == TOO_LARGE

    def database_now(self, connection: Connection) -> datetime:
        now: datetime = connection.execute(select(func.utc_timestamp(6))).scalar_one()
        return now.replace(tzinfo=UTC)

    @contextmanager
    def lock_waits(self, connection: Connection, seconds: float) -> Iterator[None]:
        """See `Dialect.lock_waits`. The servers wait for whole seconds, and one at least."""
        before = connection.execute(text("SELECT @@innodb_lock_wait_timeout")).scalar_one()
        limit = "SET SESSION innodb_lock_wait_timeout = "
        connection.exec_driver_sql(f"{limit}{whole(min(seconds, _LONGEST_WAIT_SECONDS))}")
        try:
            yield
        finally:
            # Of a connection that broke nothing is left.
            with suppress(DBAPIError, PendingRollbackError):
                connection.exec_driver_sql(f"{limit}{before}")

    def is_lock_refusal(self, error: DBAPIError) -> bool:
        arguments: tuple[Any, ...] = getattr(error.orig, "args", ())
        return bool(arguments) and arguments[0] in {LOCK_WAIT_TIMEOUT, LOCK_NOWAIT}

    def _lock_limit(self, seconds: float) -> str:
        return f"SET SESSION lock_wait_timeout = {whole(seconds)}"

    @contextmanager
    def named_lock(self, connection: Connection, name: str, *, wait: bool) -> Iterator[bool]:
        full = _lock_name(connection, name)
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

    def lock_holder(self, connection: Connection, name: str) -> str | None:
        """See `Dialect.lock_holder`. Servers tell the users of others only to some."""
        session = connection.execute(select(func.is_used_lock(_lock_name(connection, name))))
        if (number := session.scalar()) is None:
            return None
        sessions = self._sessions(connection)
        user: str | None = connection.execute(
            text(f"SELECT concat(user, '@', host) FROM {sessions} WHERE id = :session"),
            {"session": number},
        ).scalar()
        return f"session {number}" + (f" of {user}" if user else "")

    def _keep_idle(self, connection: Connection, *, keep: bool) -> None:
        """Let a session that holds a lock be silent for as long as its work lasts, or no longer."""
        seconds = sleepers.LONGEST_IDLE_SECONDS if keep else whole(self._limits.statement)
        connection.execute(text(f"SET SESSION wait_timeout = {seconds}"))

    def notifier(self, engine: Engine, channel: str) -> Notifier:
        with engine.connect() as connection:
            sessions = self._sessions(connection)
        return sleepers.SleepersNotifier(engine, channel, sessions, self.check_open)

    def _sessions(self, connection: Connection) -> str:
        """The table of the server's sessions."""
        return sessions_of(connection)

    def commits_of_others(self, engine: Engine, watch: Watch) -> Generator[Heard, None, None]:
        return sleepers.commits_of_others(engine, watch, f"{self._statement_limit} = 0")


def _lock_name(connection: Connection, name: str) -> str:
    """These locks are the whole server's. One whose name is too long for it ends with a digest."""
    full = f"{connection.engine.url.database}:{name}"
    if len(full) <= _LOCK_NAME_LENGTH:
        return full
    digest = hashlib.sha256(full.encode()).hexdigest()[:_DIGEST_LENGTH]
    return full[: _LOCK_NAME_LENGTH - _DIGEST_LENGTH] + digest
