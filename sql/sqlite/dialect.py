"""SQLite in WAL mode, with one writer at a time.

How a write transaction begins. The driver begins none (`isolation_level` is None). SQLAlchemy calls
the listeners of its event "begin" where a transaction starts; ours (`_begin`) sends BEGIN
IMMEDIATE, which takes the file's write lock. A transaction that took it later, after a read, would
fail at once with SQLITE_BUSY if another had written in between.

How writers wait. Threads of this process queue on one of Python's locks (`writers`). While another
process has the file's lock, BEGIN IMMEDIATE is sent again and again (`patience`). SQLite's own
waiting is by sleeping, for up to 100 ms.

Without a transaction are reads, and statements that commit by themselves: moves are such
(`moves`). As in READ COMMITTED, each statement sees the state of its own moment. The post of an
event that is born claimed is a transaction, so that its id enters the ledger before the COMMIT.

Connections lent to a user's handler begin without the lock. They take it at their first write:
`_lock_at_first_write` is called before each statement. On them alone the driver begins a
transaction, too, if the handler writes on the driver's own cursor.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.exc import DBAPIError

from sql.dialect import MARK, Dialect
from sql.drivers.hot_path import LAZY, OURS, Use
from sql.errors import UnsupportedDatabaseError
from sql.settling import Ended, OpenDatabase
from sql.sqlite import file_watch, open_files, settling
from sql.sqlite.capabilities import SQLITE
from sql.sqlite.file import absolute, is_in_memory, real_path
from sql.sqlite.file_lock import locked_file, owner, release
from sql.sqlite.keys import SQLiteKeys
from sql.sqlite.patience import patiently
from sql.sqlite.raw import SQLiteRaw, commits_each
from sql.sqlite.statements import SQLiteStatements
from sql.sqlite.work import SQLiteWorkTasks
from sql.sqlite.writers import Queue, SQLiteWriterLock, is_busy, not_begun
from sql.time_limits import TimeLimits, milliseconds
from sql.watching import Heard, Watch
from sql.writer_lock import WriterLock

T = TypeVar("T")

WAITS = "stickybus_waits"
"""In a connection's `info`: the seconds that SQLite itself waits for locks on it."""
MARKED = "stickybus_marked"
"""In a connection's `info`: whether its lazy transaction has taken the write lock."""
CHANGES = "stickybus_changes"
"""In a connection's `info`: the rows that it had changed before its lazy transaction."""
DUPLICATE = frozenset(
    {"SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_ROWID", "SQLITE_CONSTRAINT_UNIQUE"}
)

_REPLACING = partial(str, encoding="utf-8", errors="replace")

_lent: dict[tuple[str, int], Connection] = {}
"""Transactions that users' code writes in, by real path and thread."""


class SQLite(Dialect):
    """SQLite's ways."""

    name = "sqlite"
    own_statements: tuple[type[object], ...] = (
        SQLiteStatements,
        SQLiteKeys,
        SQLiteWorkTasks,
    )
    capabilities = SQLITE
    raw = SQLiteRaw()

    def __init__(self) -> None:
        self._queue = Queue()
        self._lenient = False
        """Whether bytes that are no UTF-8 are read as U+FFFD.

        So from the first such text on, which only a row by hand holds.
        """

    def own_url(self, url: URL) -> URL:
        if url.host:
            raise UnsupportedDatabaseError(
                f"an SQLite URL has three slashes before the path: write "
                f"sqlite:///{url.host}{'/' * bool(url.database)}{url.database or ''}. Nothing was "
                "connected or written."
            )
        if is_in_memory(url):
            raise UnsupportedDatabaseError(
                "an SQLite database in memory dies with its connection; name a file, or use the "
                "in-memory bus"
            )
        return absolute(url)

    def path_name(self, url: URL) -> str | None:
        """See `Dialect.path_name`. None for a URI, which says more than a path."""
        if not url.database or url.database.startswith("file:"):
            return None
        return url.set(database=str(Path(url.database).resolve())).render_as_string()

    def settled(self, database: OpenDatabase, ended: Ended) -> bool:
        return settling.settled(database, ended)

    def identity(self, connection: Connection) -> str:
        """See `Dialect.identity`: the real file."""
        files = connection.exec_driver_sql("PRAGMA database_list").all()
        return os.path.realpath(str(next(file for _, name, file in files if name == "main")))

    def connect_options(
        self, *, statement_timeout_seconds: float, application_name: str
    ) -> dict[str, Any]:
        self._application_name = application_name
        self._limits = TimeLimits(statement_timeout_seconds)
        return {
            "connect_args": {
                "timeout": self._limits.statement,
                "isolation_level": None,
                "check_same_thread": False,
            }
        }

    def prepare(self, engine: Engine) -> None:
        path = real_path(engine.url)
        open_files.opened(path)
        self._path = path
        self._queue.join(path)
        self._queue.longest_wait_seconds = self._limits.lock
        event.listen(engine, "connect", self._configure)
        event.listen(engine, "invalidate", _roll_back)
        if engine.get_execution_options()[OURS] in {Use.TRANSACTIONS, Use.LENT}:
            event.listen(engine, "begin", self._begin)
        else:
            event.listen(engine, "connect", _skip_checks)

    def _begin(self, connection: Connection) -> None:
        """Called by SQLAlchemy where a transaction starts: sends BEGIN IMMEDIATE, or waits to."""
        if LAZY in connection.get_execution_options():
            self._set_wait(connection, self._limits.statement)
        else:
            self._take_write_lock(connection)

    def _set_wait(self, connection: Connection, seconds: float) -> None:
        """Set how long SQLite itself waits for others' locks.

        Not at all where we wait ourselves, or where there is no lock to wait for.
        """
        info = connection.info
        if self._lenient:
            _driver(connection).text_factory = _REPLACING
        if info.get(WAITS) != seconds:
            info.pop(WAITS, None)  # not known until the statement has returned
            _driver(connection).execute(
                f"PRAGMA busy_timeout = {seconds and milliseconds(seconds)}"
            )
            info[WAITS] = seconds

    def _lock_at_first_write(
        self,
        connection: Connection,
        _cursor: object,
        statement: str,
        _parameters: object,
        _context: object,
        _many: bool,  # noqa: FBT001 -- SQLAlchemy's signature
    ) -> None:
        """Called by SQLAlchemy before each statement on a lent connection.

        The first one that writes takes the write lock, and sets the mark of `mark`.
        """
        reads = statement.lstrip()[:6].upper() in {"SELECT", "PRAGMA", "EXPLAI"}
        if not reads and not _driver(connection).in_transaction:
            self._take_write_lock(connection)
            self._queue.changes += 1
            first, connection.info[MARKED] = not _has_written(connection), True
            if first:
                _driver(connection).execute(f"SAVEPOINT {MARK}")

    def _take_write_lock(self, connection: Connection) -> None:
        """Send BEGIN IMMEDIATE: a transaction and the file's write lock, or DBAPIError."""
        self._set_wait(connection, 0.0)
        begin = partial(_driver(connection).execute, "BEGIN IMMEDIATE")
        try:
            patiently(begin, self._limits.lock)
        except sqlite3.OperationalError as error:
            raise not_begun(error) from error

    def _configure(self, connection: sqlite3.Connection, _record: object) -> None:
        """Called by SQLAlchemy for each connection that it opens."""
        # Of two that turn a new file's log on at the same time, SQLite refuses one at once,
        # however long it may wait.
        patiently(partial(connection.execute, "PRAGMA journal_mode=WAL"), self._limits.lock)
        # FULL: an entry whose commit returned survives a power cut.
        for pragma in ("synchronous=FULL", "temp_store=MEMORY", "journal_size_limit=67108864"):
            connection.execute(f"PRAGMA {pragma}")

    def commits_of_others(self, engine: Engine, watch: Watch) -> Generator[Heard, None, None]:
        return file_watch.commits_of_others(engine, watch, lambda: self._queue.changes)

    def closed(self) -> None:
        open_files.closed(self._path)

    @contextmanager
    def lending(self, connection: Connection) -> Iterator[None]:
        key, driver = (self._path, threading.get_ident()), _driver(connection)
        _lent[key] = connection
        connection.info.update({MARKED: False, CHANGES: driver.total_changes})
        # Writes on the driver's own cursors, of which SQLAlchemy knows nothing, begin it as well.
        driver.isolation_level = "IMMEDIATE"
        event.listen(connection, "before_cursor_execute", self._lock_at_first_write)
        try:
            yield
        finally:
            del _lent[key]
            self._queue.changes += 1

    def mark(self, connection: Connection) -> None:
        """See `_lock_at_first_write`: until the first write there is no transaction."""

    def unmark(self, connection: Connection) -> None:
        """See `Dialect.unmark`. A connection that was not lent is never marked.

        Nor is a transaction that the driver has begun: it is the same if it is still open.
        """
        marked: bool | None = connection.info.get(MARKED)
        if marked or (
            marked is False and _has_written(connection) and not _driver(connection).in_transaction
        ):
            # If the transaction is over, this begins another, which lacks the mark: an error.
            super().unmark(connection)

    @contextmanager
    def part(self, connection: Connection) -> Iterator[None]:
        """See `Dialect.part`. Outside of a transaction, a savepoint would be one by itself."""
        if LAZY in connection.get_execution_options():  # locks at its first write: the savepoint
            with super().part(connection):
                yield
            return
        driver: Any = connection.connection.driver_connection
        if not connection.in_transaction():
            connection.begin()  # whose listeners may send a BEGIN of their own
        if driver.in_transaction or not commits_each(driver):
            if not driver.in_transaction:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            with super().part(connection):
                yield
            return
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield
            connection.exec_driver_sql("COMMIT")
        except BaseException:
            if driver.in_transaction:
                connection.exec_driver_sql("ROLLBACK")
            raise

    def _commits_each(self, connection: Connection) -> bool:
        del connection
        return False  # `part` has begun a transaction

    def writer_lock(self) -> WriterLock:
        lent = _lent.get((self._path, threading.get_ident()))
        if lent is not None and not lent.invalidated and _driver(lent).in_transaction:
            # It would wait for itself.
            failure = sqlite3.OperationalError(
                "the transaction of this handler holds the file's only write lock: write through "
                "context.connection, and pass connection=context.connection to posts"
            )
            raise DBAPIError.instance(
                "BEGIN IMMEDIATE", {}, failure, sqlite3.Error, dialect=lent.dialect
            )
        return SQLiteWriterLock(self._queue)

    def writes_for_caller(self) -> None:
        # Its transaction has the write lock: until it ends, nobody else commits.
        self._queue.changes += 1

    def autocommit(self, connection: Connection, work: Callable[[Connection], T]) -> T:
        self._set_wait(connection, 0.0)
        return patiently(partial(work, connection), self._limits.lock)

    def is_idle(self, driver: Any) -> bool:
        return not driver.in_transaction

    def read_on(self, connection: Connection) -> None:
        self._set_wait(connection, self._limits.statement)

    @contextmanager
    def named_lock(self, connection: Connection, name: str, *, wait: bool) -> Iterator[bool]:
        if wait:
            # With `wait`, it is asked for by writers alone, and these take turns.
            yield True
            return
        lock = locked_file(self._lock_path(name), self._application_name)
        try:
            yield lock is not None
        finally:
            if lock is not None:
                release(lock)

    def lock_holder(self, connection: Connection, name: str) -> str | None:
        del connection
        return owner(self._lock_path(name))

    def _lock_path(self, name: str) -> str:
        return f"{self._path}-{name}.lock"

    def is_duplicate(self, error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlite_errorname", None) in DUPLICATE

    def is_transient(self, error: DBAPIError) -> bool:
        if (
            isinstance(error.orig, sqlite3.OperationalError)
            and "decode to UTF-8" in str(error.orig)
            and not self._lenient
        ):
            self._lenient = True
            return True
        return is_busy(error)


def _roll_back(connection: sqlite3.Connection, *_why: object) -> None:
    """End the transaction of a connection that is about to be closed.

    A cursor in some traceback would keep it open still.
    """
    with suppress(sqlite3.Error):
        connection.rollback()


def _has_written(connection: Connection) -> bool:
    """Whether a lent connection has begun to write, on the driver's own cursors perhaps."""
    info = connection.info
    return bool(info[MARKED] or _driver(connection).total_changes != info[CHANGES])


def _skip_checks(connection: sqlite3.Connection, _record: object) -> None:
    """Skip the CHECK constraints of our tables on this connection.

    They are for rows by hand. The library's own rows fit, and this connection writes no others.

    To check three dates takes SQLite twice as long as all else that a claim changes in a row.
    """
    connection.execute("PRAGMA ignore_check_constraints=ON")


def _driver(connection: Connection) -> Any:
    return connection.connection.dbapi_connection  # which a detached connection knows, too
