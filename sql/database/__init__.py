"""One database: our own transactions on it, which run again after errors that pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import memoized_property

from sql.database.commits import AT_COMMIT, COMMITTED, commit, within
from sql.database.engines import Engines
from sql.database.given_connections import GivenConnections
from sql.database.kept_connections import KeptConnections
from sql.drivers.hot_path import LAZY
from sql.time_limits import TimeLimits
from sql.transient import OWN_TRANSACTION, Patience, persist
from sql.writer_lock import NO_LOCK

__all__ = ["AT_COMMIT", "COMMITTED", "Database"]

T = TypeVar("T")
R = TypeVar("R")


class Blocking(Protocol):
    """Runs a call that waits for the database, and returns its answer."""

    def __call__(self, call: Callable[[], T], /) -> T:
        """Run `call`, in this thread or in another one."""
        ...


def _here(call: Callable[[], T]) -> T:
    return call()


class Database:
    """One database, through pools of its own connections, which have their own session settings.

    `target` is a URL, or an application's engine. Its pool's way of connecting is taken over,
    credentials from events included; its connections are left alone. A URL may name any driver,
    asynchronous ones too: ours is used. Of an engine by another driver the URL is taken over.
    Raises UnsupportedDatabaseError and MissingDriverError. It connects to servers, to learn which
    of MySQL and MariaDB it is, and whether a pooler that can't be used stands before PostgreSQL.

    `blocking` runs each piece of work on its connections, which must use no other connection then.
    """

    def __init__(
        self,
        target: str | URL | Engine,
        *,
        statement_timeout_seconds: float = 30.0,
        application_name: str = "stickybus",
        blocking: Blocking = _here,
    ) -> None:
        self._blocking = blocking
        engines = self._engines = Engines(
            target,
            statement_timeout_seconds=statement_timeout_seconds,
            application_name=application_name,
        )
        self.url, self.dialect = engines.url, engines.dialect
        self.engine, self.lent = engines.transactions, engines.lent
        self.autocommit, self.inserts = engines.autocommit, engines.inserts
        self.kept = KeptConnections(engines)
        self.given = GivenConnections(engines)
        # Else a dead network, or a lock that stays, would hold up a caller for each try anew.
        self._patience = OWN_TRANSACTION.within(TimeLimits(statement_timeout_seconds).statement)

    @property
    def engines(self) -> list[Engine]:
        """All that connects."""
        return self._engines.all

    @property
    def opened(self) -> int:
        """Connections that were opened so far."""
        return self._engines.opened

    @property
    def keeps_connections(self) -> bool:
        """Whether a connection outlives its use."""
        return self._engines.keeps_connections

    @memoized_property
    def key(self) -> str:
        """The database's own name.

        Two objects for one database have the same, however their URLs are spelled.
        """
        return self.fetch(self.dialect.identity)

    @memoized_property
    def place(self) -> str | None:
        """The database's name as connections tell it; see `RawDriver.place_of_connection`."""
        return self.fetch(self.dialect.raw.place_of_connection)

    @memoized_property
    def server(self) -> str | None:
        """The server's own name; see `Dialect.server`."""
        return self.fetch(self.dialect.server)

    @contextmanager
    def begin(self, given: Connection | None = None) -> Iterator[Connection]:
        """A write transaction, committed at the end of the block.

        It has a connection to itself unless one is given.
        """
        lock = self.dialect.writer_lock()
        try:
            lock.begin()
            with (
                nullcontext(given)
                if given is not None
                else self.kept.connection(self.engine) as connection
            ):
                transaction = connection.begin()
                try:
                    yield connection
                except BaseException:
                    transaction.rollback()
                    raise
                commit(connection, transaction)
        finally:
            lock.end()

    def _noted(self, work: Callable[[Connection], T], connection: Connection) -> T:
        """Run a statement that commits by itself; if its answer is lost, the error says so."""
        try:
            return self.dialect.autocommit(connection, work)
        except BaseException as error:
            if connection.invalidated and not self.dialect.is_stale(getattr(error, "orig", error)):
                error.add_note(AT_COMMIT)
            raise

    def _autocommit_and(
        self, work: Callable[[Connection], T], then: Callable[[Connection, T], R]
    ) -> R:
        def both(connection: Connection) -> R:
            answer = self.dialect.writer_lock().within(partial(self._noted, work, connection))
            try:
                return self._answer(connection, partial(then, connection, answer))
            except BaseException as error:
                error.add_note(COMMITTED)
                raise

        return self.kept.run(self.autocommit, both, NO_LOCK)

    def _answer(self, connection: Connection, read: Callable[[], R]) -> R:
        """Make the answer of a statement that has committed; once more after a transient error."""
        try:
            return read()
        except DBAPIError as error:
            if not self.dialect.is_transient(error):
                raise
        self.dialect.read_on(connection)
        return read()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """For work that only reads.

        In READ COMMITTED each statement sees the state of its own moment anyway.
        """
        with self.kept.connection(self.autocommit) as connection:
            self.dialect.read_on(connection)
            yield connection

    def open_ahead(self) -> None:
        """Open the connections of a claim and a finish, which the first entries would wait for."""
        engine = self.autocommit if self.dialect.capabilities.moves_at_once else self.engine
        if self.kept.most > 1:
            with self.kept.connection(engine), self.kept.connection(engine):
                pass

    @contextmanager
    def beside(self) -> Iterator[Connection]:
        """A connection for a lock that is held while others are needed, mostly.

        It is in no pool, so it takes none of the connections of pools.
        """
        connection = self.engine.connect()
        driver: Any = connection.connection.dbapi_connection
        connection.detach()
        try:
            with connection:
                yield connection
        finally:
            # One that was given up, as after an interrupt, would stay open with its locks: no pool
            # closes it.
            errors: Any = self.engine.dialect.loaded_dbapi
            with suppress(errors.Error):  # closed already, mostly
                driver.close()

    @contextmanager
    def holding(self, name: str) -> Iterator[Connection | None]:
        """Hold a lock of the whole database. Yields its connection, or None if another has it."""
        with (
            self.beside() as connection,
            self.dialect.named_lock(connection, name, wait=False) as had,
        ):
            connection.commit()
            yield connection if had else None

    def holder(self, name: str) -> str:
        """The holder of the lock that `holding` did not get, as a message says it."""
        found: str | None = None
        with suppress(DBAPIError):  # a user may not be allowed to see the sessions of others
            found = self.fetch(lambda connection: self.dialect.lock_holder(connection, name))
        return found or "another process"

    @contextmanager
    def lazy(self) -> Iterator[Connection]:
        """A connection whose transaction the caller ends. SQLite locks at its first write."""
        with self.lent.connect() as connection:
            lazy = connection.execution_options(**{LAZY: True})
            with self.dialect.lending(lazy):
                yield lazy

    def write(self, work: Callable[[Connection], T], undo: Callable[[], None] | None = None) -> T:
        """Run `work` in a write transaction, and again after a deadlock or its like.

        `OWN_TRANSACTION` says how often.

        Never again after a COMMIT that gave no answer, nor when a statement's time has passed since
        the first. Each run that fails calls `undo` before anybody else may write: SQLite gives ids
        that were rolled back out again.
        """
        once = partial(within, work)
        return self._persist(
            lambda: self.kept.run(self.engine, once, self.dialect.writer_lock(), undo)
        )

    def write_autocommit(
        self, work: Callable[[Connection], T], then: Callable[[Connection, T], R]
    ) -> R:
        """As `write`, for work that commits by itself, as one statement does: one round trip.

        `then` makes the answer of its result, on the same connection, while others may write.
        """
        return self._persist(lambda: self._autocommit_and(work, then))

    def insert_autocommit(self, work: Callable[[Connection], T]) -> T:
        """As `write_autocommit`, for an INSERT of values."""
        noted = partial(self._noted, work)
        return self._persist(lambda: self.kept.run(self.inserts, noted, self.dialect.writer_lock()))

    def fetch(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, which only reads, again after a transient error."""

        def reading(connection: Connection) -> T:
            self.dialect.read_on(connection)
            return work(connection)

        return self._persist(lambda: self.kept.run(self.autocommit, reading, NO_LOCK))

    def _persist(self, once: Callable[[], T]) -> T:
        return self._blocking(partial(persist, once, self._may_succeed, self._patience))

    def persist(
        self, run: Callable[[], T], patience: Patience, between: Callable[[], None] = lambda: None
    ) -> T:
        """Call `run`, and again after an error that passes; see `sql.transient.persist`."""
        return persist(run, self.is_transient, patience, between)

    def is_transient(self, error: BaseException) -> bool:
        """Whether an error passes by itself, as a deadlock does, or a lock that was not had."""
        return isinstance(error, DBAPIError) and self.dialect.is_transient(error)

    def _may_succeed(self, error: BaseException) -> bool:
        """Whether a transaction that failed like this may be run again.

        It has not committed, and the cause passes.

        A connection that turned out to be broken, as all in the pool are after a restart of the
        server, is replaced.
        """
        if not isinstance(error, DBAPIError):
            return False
        notes = getattr(error, "__notes__", ())
        if COMMITTED in notes:
            return False
        broken = error.connection_invalidated and AT_COMMIT not in notes
        # A server that answers a COMMIT with a deadlock or its like has rolled back.
        return broken or self.dialect.is_transient(error)

    def has_written(self) -> bool:
        """Begin and end a write transaction.

        False if its lock was not had in a statement's time.
        """
        try:
            with self.begin():
                return True
        except DBAPIError as error:
            if not self.dialect.is_transient(error):
                raise
            return False

    def reopened(self, *, statement_timeout_seconds: float) -> Database:
        """The same database, with other connections and another limit. The caller closes it."""
        return Database(
            self.url,
            statement_timeout_seconds=statement_timeout_seconds,
            blocking=self._blocking,
        )

    @property
    def closed(self) -> bool:
        """Whether connections are closed as soon as they come back."""
        return self._engines.closed

    def close(self) -> None:
        """Close all connections that are not in use; those in use close when they come back."""
        self._engines.close(self.kept.close)
