"""Databases of simulated processes.

Their connections are real; transactions are boundaries, and can fail there.

The hooks sit where SQLAlchemy begins, commits and rolls back, beneath the engine's code.
Connections are kept from one simulation to the next: what costs time is to compile statements.
"""

from __future__ import annotations

import functools
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import ExceptionContext
from sqlalchemy.exc import DBAPIError

from sql.database import Database
from sql.drivers.hot_path import LAZY
from tests.requirements import capabilities_of
from tests.simulation.steps import Fault
from tests.simulation.threads import Killed, Scheduler, Task

TABLES = ("bus_events", "notifications")
_INSERTS = re.compile(rf"INSERT INTO (\w+\.)?({'|'.join(TABLES)}) \(").match
_SHRINKS = ("DELETE", "TRUNCATE TABLE")
_KEPT = "CREATE TEMP"
"""What a connection has for good, and so is run in no other simulation with it: no boundary."""
_BROKEN = "simulated"


class Watcher(Protocol):
    """What the hooks report to."""

    scheduler: Scheduler
    down: bool

    def committed(self, task: Task, *, inserted: bool, nodes: bool) -> None:
        """A transaction of `task` has committed."""

    def keep_history(self, rows: list[Mapping[str, Any]]) -> None:
        """These rows of history are about to be deleted."""


class Databases:
    """All connections of a simulation to one database.

    `watcher` is the simulation that runs now.
    """

    def __init__(self, url: URL) -> None:
        self.url = url
        self.watcher: Watcher | None = None
        self.one_writer = capabilities_of(url.get_backend_name()).one_writer
        self._observing = create_engine(url, isolation_level="AUTOCOMMIT")
        self._observer = self._observing.raw_connection()
        self._touched: dict[int, set[str]] = {}
        """What the transactions under way have written, by connection."""
        self._free: list[tuple[Database, Engine]] = []
        self._used: list[tuple[Database, Engine]] = []
        self._observer.cursor().execute(
            "CREATE TABLE IF NOT EXISTS simulated_effects "
            "(number BIGINT NOT NULL, subscriber INTEGER NOT NULL)"
        )

    # -- connections ------------------------------------------------------------------------------

    def take(self) -> tuple[Database, Engine]:
        """The engine's connections of a process, and those of its application."""
        if not self._free:
            database = Database(self.url)
            dialect: Any = database.dialect
            kind = dialect.statements_for
            dialect.statements_for = functools.cache(lambda family: functools.cache(kind(family)))
            application = create_engine(self.url, **self._options(database))
            if self.one_writer:
                # Processes don't share the lock of one process; the file's own lock is waited for
                # by the scheduler.
                dialect._queue.lock = _Unshared()
                event.listen(application, "connect", _impatient)
                # The boundary comes first: at it, nothing is locked yet (these events ignore
                # `insert`).
                for engine in (database.engine, database.lent):
                    event.remove(engine, "begin", dialect._begin)
            for engine in (*database.engines, application):
                self._hook(engine)
            if self.one_writer:
                for engine in (database.engine, database.lent):
                    event.listen(engine, "begin", dialect._begin)
                event.listen(application, "begin", self._begin_immediate)
            # Asked once by a database, which serves many simulations: none of them is to see it.
            assert database.key
            assert database.server or self.one_writer
            self._free.append((database, application))
        taken = self._free.pop()
        self._used.append(taken)
        return taken

    def _options(self, database: Database) -> dict[str, Any]:
        return database.dialect.connect_options(
            statement_timeout_seconds=30.0, application_name="simulated"
        )

    def reset(self) -> None:
        """Empty all tables; what was taken may be taken again."""
        self._touched.clear()
        self._free += self._used
        self._used.clear()
        tables = [
            *TABLES,
            *(f"{table}_history" for table in TABLES),
            "queue_nodes",
            "queue_circuits",
            "queue_pauses",
            "queue_limits",
            "queue_places",
            "queue_keys",
            "queue_ordered",
            "queue_order_heads",
            "queue_waits",
            "queue_groups",
            "queue_group_ends",
            "queue_replays",
            "simulated_effects",
        ]
        if self.one_writer:
            tables.append("sqlite_sequence")
        cursor = self._observer.cursor()
        for statement in ("BEGIN", *(f"DELETE FROM {table}" for table in tables), "COMMIT"):
            cursor.execute(statement)

    def rows(self, statement: str) -> list[Mapping[str, Any]]:
        """What stands in the database now."""
        cursor = self._observer.cursor()
        cursor.execute(statement)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def close(self) -> None:
        """Close all connections."""
        for database, application in [*self._free, *self._used]:
            database.close()
            application.dispose()
        self._observer.close()
        self._observing.dispose()

    # -- hooks ------------------------------------------------------------------------------------

    def _hook(self, engine: Engine) -> None:
        event.listen(engine, "connect", _quick)
        event.listen(engine, "begin", self._before_begin)
        event.listen(engine, "before_cursor_execute", self._before_statement)
        event.listen(engine, "after_cursor_execute", self._after_statement)
        event.listen(engine, "handle_error", self._failed)
        dialect: Any = engine.dialect
        commit, rollback = dialect.do_commit, dialect.do_rollback

        def do_commit(connection: Any) -> None:
            self._commit(connection, commit, rollback, dialect.loaded_dbapi)

        def do_rollback(connection: Any) -> None:
            rollback(connection)
            self._touched.pop(id(connection.dbapi_connection), None)

        dialect.do_commit, dialect.do_rollback = do_commit, do_rollback

    def _commits_statements(self, connection: Connection) -> bool:
        return any(
            connection.engine in {database.autocommit, database.inserts}
            for database, _ in self._used
        )

    def _begins_statements(self, connection: Connection) -> bool:
        """Return whether a boundary is before each statement.

        Such a connection "begins" once, and is kept for other simulations.

        Not on a server: this thread may hold locks there, in a transaction, and to connect anew
        takes real time.
        """
        return self.one_writer and self._commits_statements(connection)

    def _begin_immediate(self, connection: Connection) -> None:
        """As an application does, but for the wait: it is the scheduler's."""
        driver: Any = connection.connection.driver_connection
        while True:
            try:
                driver.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError:
                if self.watcher is None or self.watcher.scheduler.current is None:
                    raise
                self.watcher.scheduler.pause("the write lock", stuck=True)

    def _before_begin(self, connection: Connection) -> None:
        if not self._begins_statements(connection):
            self._boundary(connection)

    def _boundary(self, connection: Connection) -> None:
        """A transaction is about to begin."""
        watcher = self.watcher
        task = watcher.scheduler.current if watcher is not None else None
        if watcher is None or task is None:
            return
        _check_alive(task)
        # Between the look at the lease and the handler that it guards nothing is let in.
        if LAZY not in connection.get_execution_options():
            watcher.scheduler.pause("BEGIN")
        if watcher.down or task.fault == Fault.BROKEN:
            if task.fault == Fault.BROKEN:
                task.fault = Fault.NONE
            raise _broken(connection, "BEGIN", "the connection is broken")

    def _before_statement(
        self, connection: Connection, _cursor: object, statement: str, *_rest: object
    ) -> None:
        watcher = self.watcher
        task = watcher.scheduler.current if watcher is not None else None
        if watcher is None or task is None or statement.startswith(_KEPT):
            return
        if self._begins_statements(connection):
            self._boundary(connection)
        _check_alive(task)
        if statement.startswith(("SELECT", "BEGIN", "PRAGMA")):
            return
        touched = self._touched.setdefault(id(connection.connection.dbapi_connection), set())
        touched.add("write")
        if _INSERTS(statement):
            touched.add("entries")
        elif "queue_nodes" in statement:
            touched.add("nodes")
        elif statement.startswith(_SHRINKS):
            for table in TABLES:
                if f"{table}_history" in statement:
                    kept = connection.exec_driver_sql(f"SELECT * FROM {table}_history").mappings()
                    watcher.keep_history([dict(row, table=table) for row in kept])

        if self._commits_statements(connection) and (
            watcher.down or task.fault == Fault.COMMIT_FAILED
        ):
            touched.clear()
            task.fault = Fault.NONE
            raise _broken(connection, statement, "the statement failed")

    def _after_statement(self, connection: Connection, *_rest: object) -> None:
        """What `_commit` does, for a statement that commits itself."""
        watcher = self.watcher
        task = watcher.scheduler.current if watcher is not None else None
        if watcher is None or task is None or not self._commits_statements(connection):
            return
        touched = self._touched.pop(id(connection.connection.dbapi_connection), set())
        if not touched:
            return
        watcher.committed(task, inserted="entries" in touched, nodes="nodes" in touched)
        if task.fault == Fault.COMMIT_LOST:
            task.fault = Fault.NONE
            raise _broken(connection, "a statement", "no answer")
        watcher.scheduler.pause("after COMMIT")

    def _failed(self, context: ExceptionContext) -> None:
        if _BROKEN in str(context.original_exception):
            context.is_disconnect = True
        connection = context.connection
        if (
            connection is not None
            and not connection.invalidated
            and self._commits_statements(connection)
        ):
            # One that was refused, for want of the write lock, has written nothing.
            self._touched.pop(id(connection.connection.dbapi_connection), None)

    def _commit(self, connection: Any, commit: Any, rollback: Any, dbapi: Any) -> None:
        touched = self._touched.pop(id(connection.dbapi_connection), set())
        watcher = self.watcher
        task = watcher.scheduler.current if watcher is not None else None
        if watcher is None or task is None or not touched:
            commit(connection)
            return
        _check_alive(task)
        # Elsewhere others would wait for this transaction's locks, and for good: in this thread.
        if self.one_writer:
            watcher.scheduler.pause("COMMIT")
        fault = task.fault
        if watcher.down or fault == Fault.COMMIT_FAILED:
            task.fault = Fault.NONE
            rollback(connection)
            raise dbapi.OperationalError(f"{_BROKEN}: COMMIT failed")
        commit(connection)
        watcher.committed(task, inserted="entries" in touched, nodes="nodes" in touched)
        if fault == Fault.COMMIT_LOST:
            task.fault = Fault.NONE
            raise dbapi.OperationalError(f"{_BROKEN}: no answer to COMMIT")
        watcher.scheduler.pause("after COMMIT")


class _Unshared:
    """In place of a lock that only threads of one process share."""

    def acquire(self, timeout: float) -> bool:
        del timeout
        return True

    def _is_owned(self) -> bool:
        return False


def _broken(connection: Connection, statement: str, told: str) -> BaseException:
    """What SQLAlchemy raises of a connection that is gone.

    This one is not: to connect anew takes real time.
    """
    dbapi: Any = connection.dialect.loaded_dbapi
    failure = dbapi.OperationalError(f"{_BROKEN}: {told}")
    broken: BaseException = DBAPIError.instance(
        statement, {}, failure, dbapi.Error, connection_invalidated=True, dialect=connection.dialect
    )
    return broken


def _check_alive(task: Task) -> None:
    if not task.owner.alive:
        raise Killed


def _impatient(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA busy_timeout=0")


def _quick(connection: Any, _record: object) -> None:
    if type(connection).__module__ == "sqlite3":
        connection.execute("PRAGMA synchronous=OFF")


@contextmanager
def watching(databases: Databases, watcher: Watcher) -> Iterator[None]:
    """Report to `watcher` inside the block."""
    databases.watcher = watcher
    try:
        yield
    finally:
        databases.watcher = None
