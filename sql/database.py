"""Our own connections to a database: where they come from, their transactions, and what is retried."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

import tenacity
from sqlalchemy import URL, Connection, Engine, RootTransaction, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, QueuePool
from sqlalchemy.util import memoized_property

from sql.dialect import NO_TURN, Dialect, Turn
from sql.hot_path import OURS, Use
from sql.limits import Limits
from sql.mysql.dialect import MySQL
from sql.registry import DRIVERS, dialect_of
from sql.sqlite import file as sqlite_file
from sql.sqlite.dialect import LAZY

T = TypeVar("T")
R = TypeVar("R")

TRANSIENT_TRIES = 8
"""Runs of one transaction of ours that keeps meeting deadlocks or lock time-outs."""

KEPT, FREE = 4, 2
"""Connections of a pool that are kept out of it between transactions of ours at most, and left in it at least."""

_ASKED = frozenset({"mysql", "mariadb"})
"""Backends of which either name may stand for either server."""


AT_COMMIT = "raised by COMMIT: whether it took effect is not known"
COMMITTED = "raised after the COMMIT: it took effect"
"""Notes on the errors of which this is true."""


def _nothing() -> None:
    pass


class UnsupportedDatabaseError(ValueError):
    """A URL of a database that Stickybus does not run on."""


class Database:
    """One database, through a pool of connections of its own with their own session settings.

    `target` is a URL, or an engine whose pool's way of connecting is taken over (credentials from events included)
    while its connections are left alone. A URL may name any driver, asynchronous ones too: ours is used.
    Raises UnsupportedDatabaseError; connects to servers, to learn which of MySQL and MariaDB it is, and whether a pooler
    that can't be used stands before PostgreSQL.
    """

    def __init__(
        self,
        target: str | URL | Engine,
        *,
        statement_timeout_seconds: float = 30.0,
        application_name: str = "stickybus",
    ) -> None:
        self.url = _own_url(target)
        self._limits = Limits(statement_timeout_seconds)
        options = {
            "pool_reset_on_return": None,
            "max_overflow": 50,
            "pool_timeout": self._limits.statement,
            # Errors are logged, and their texts kept in history: no payload may be in them.
            "hide_parameters": True,
        }
        limits: dict[str, Any] = {
            "statement_timeout_seconds": statement_timeout_seconds,
            "application_name": application_name,
        }
        given = target if isinstance(target, Engine) and target.driver == self.url.get_driver_name() else None
        # It connects only where it has to ask which of MySQL and MariaDB it is; they are reached alike.
        asked = MySQL().connect_options(**limits) if self.url.get_backend_name() in _ASKED else {}
        probe = create_engine(self.url, **asked)
        self.dialect: Dialect = dialect_of(probe)
        probe.dispose()
        if self.dialect.name == "mariadb":
            self.url = self.url.set(drivername=DRIVERS["mariadb"])
        connecting = self.dialect.connect_options(**limits)
        if given is not None:
            options = {"hide_parameters": True}
            connecting = {key: value for key, value in connecting.items() if key == "isolation_level"}

        def bare_engine(**changes: Any) -> Engine:
            pool = {} if given is None else {"pool": given.pool.recreate()}
            return create_engine(self.url, **(connecting | options | pool | changes))

        probe = bare_engine()
        shared = self.dialect.shares_sessions(probe)
        probe.dispose()
        if shared:
            raise UnsupportedDatabaseError(
                f"{self.url.render_as_string(hide_password=True)} is a pooler that hands each session of the server to "
                "several clients in turn, as PgBouncer does with pool_mode = transaction or statement. Settings and locks "
                "of ours would stay on sessions of other clients. Nothing was set or written; name the server itself, or "
                "a pool with pool_mode = session."
            )

        def open_engine(use: Use, **changes: Any) -> Engine:
            engine = bare_engine(execution_options={OURS: use}, **changes)
            self.dialect.prepare(engine)
            self._give_up_stale_sessions(engine)
            event.listen(engine, "connect", self._count)
            event.listen(engine, "checkin", self._let_go)
            return engine

        self._pid, self._closed = os.getpid(), False
        self.opened = 0
        """Connections that were opened so far."""
        alone: dict[str, Any] = {"isolation_level": "AUTOCOMMIT", "skip_autocommit_rollback": True}
        self.engine = open_engine(Use.TRANSACTIONS)
        self.lent = open_engine(Use.TRANSACTIONS)
        """For transactions that users' code holds: however long, they keep no connection from the engine."""
        self.singles = open_engine(Use.SINGLES, **alone)
        """Where each statement is a transaction: switching a connection costs as much as its BEGIN and COMMIT."""
        self.inserts = self.singles
        """Singles that only insert, where the database can keep the plans of such."""
        if self.dialect.capabilities.keeps_plans:
            self.inserts = open_engine(Use.INSERTS, **alone)
        self._kept = {engine: deque[Connection]() for engine in self.engines}
        self._most_kept = KEPT
        if given is not None:
            # Of a pool that the application has sized; none that it doesn't keep itself.
            size = given.pool.size() if isinstance(given.pool, QueuePool) else 0
            self._most_kept = max(0, min(KEPT, size - FREE))

    def _give_up_stale_sessions(self, engine: Engine) -> None:
        """Take a session that can't write any more for a broken one: the pool replaces it, and all that are as old."""
        broken = engine.dialect.is_disconnect

        def is_disconnect(error: Any, connection: Any, cursor: Any) -> bool:
            return self.dialect.is_stale(error) or broken(error, connection, cursor)

        engine.dialect.is_disconnect = is_disconnect  # type: ignore[method-assign,assignment]

    @property
    def engines(self) -> list[Engine]:
        """All that connects."""
        return list(dict.fromkeys((self.engine, self.lent, self.singles, self.inserts)))

    @property
    def keeps_connections(self) -> bool:
        """Whether a connection outlives its use."""
        return not isinstance(self.engine.pool, NullPool)

    @memoized_property
    def key(self) -> str:
        """What the database calls itself: two objects for one have the same key, however their URLs are spelled."""
        return self.fetch(self.dialect.identity)

    @memoized_property
    def server(self) -> str | None:
        """What its server calls itself; see `Dialect.server`."""
        return self.fetch(self.dialect.server)

    @contextmanager
    def begin(self, given: Connection | None = None) -> Iterator[Connection]:
        """A write transaction, committed at the end of the block; on a connection of its own unless one is given."""
        turn = self.dialect.turn()
        try:
            turn.begin()
            with nullcontext(given) if given is not None else self._connection(self.engine) as connection:
                transaction = connection.begin()
                try:
                    yield connection
                except BaseException:
                    transaction.rollback()
                    raise
                _commit(connection, transaction)
        finally:
            turn.end()

    def _run(
        self, engine: Engine, work: Callable[[Connection], T], turn: Turn, undo: Callable[[], None] = _nothing
    ) -> T:
        """Run `work` on a connection of a pool. An exception that comes anywhere from outside leaves nothing behind.

        So this is no context manager: of one that is cut off at its end, the rest would wait for the garbage collector.
        """
        held = list[Connection]()
        try:
            turn.begin()
            held.append(self._take(engine))
            answer = work(held[0])
            self._keep(engine, held)
            turn.end()
        except BaseException as error:
            try:
                self._drop(held, error)
                undo()
            finally:
                turn.end()
            raise
        return answer

    def _noted(self, work: Callable[[Connection], T], connection: Connection) -> T:
        """Run a statement that commits by itself; if its answer is lost, the error says so."""
        try:
            return self.dialect.alone(connection, work)
        except BaseException as error:
            if connection.invalidated and not self.dialect.is_stale(getattr(error, "orig", error)):
                error.add_note(AT_COMMIT)
            raise

    def _alone_and(self, work: Callable[[Connection], T], then: Callable[[Connection, T], R]) -> R:
        def both(connection: Connection) -> R:
            answer = self.dialect.turn().within(partial(self._noted, work, connection))
            try:
                return self._answer(connection, partial(then, connection, answer))
            except BaseException as error:
                error.add_note(COMMITTED)
                raise

        return self._run(self.singles, both, NO_TURN)

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
    def _connection(self, engine: Engine) -> Iterator[Connection]:
        """One of a pool, which is kept for the next transaction: to check it out and in costs a fifth of a post."""
        held = list[Connection]()
        try:
            held.append(self._take(engine))
            yield held[0]
            self._keep(engine, held)
        except BaseException as error:
            self._drop(held, error)
            raise

    def _take(self, engine: Engine) -> Connection:
        return self._take_kept(engine) or engine.connect()

    def _keep(self, engine: Engine, held: list[Connection]) -> None:
        """Keep the connection that is held. It is held or kept, never both: what is kept is another thread's the next moment."""
        kept = self._kept[engine]
        if len(kept) < self._most_kept:
            kept.append(held.pop())
        else:
            held.pop().close()
        if self._closed:
            self._close_kept()

    def _drop(self, held: list[Connection], error: BaseException) -> None:
        """Give back what is held, after an error; closed, unless it is between transactions for sure."""
        if not held:
            return
        connection = held.pop()
        if connection.invalidated:  # others are likely to be broken, too: the pool replaces its own
            connection.close()
            self._close_kept()
        elif self._settles(connection, error):
            connection.close()
        else:
            # Not by `close`: SQLAlchemy may have been cut off in the middle of its own begin.
            connection.invalidate(error)

    def _settles(self, connection: Connection, error: BaseException) -> bool:
        """End the transaction that may be open; False if that is not sure."""
        if self.dialect.may_have_cut_off(error):
            return False
        try:
            if (transaction := connection.get_transaction()) is not None:
                transaction.rollback()
            return not connection.invalidated and self.dialect.is_idle(
                connection.connection.driver_connection
            )
        except Exception:  # noqa: BLE001 -- whatever a driver says of a connection that is closed
            return False

    def _take_kept(self, engine: Engine) -> Connection | None:
        kept = self._kept[engine]
        while kept:
            try:
                connection = kept.pop()
            except IndexError:  # another thread had it
                break
            if _has_aged(connection):
                connection.close()  # its pool opens another for it
                continue
            try:
                self.dialect.check_open(connection.connection.dbapi_connection)
            except DisconnectionError as error:
                connection.invalidate(error)
                connection.close()
            else:
                return connection
        return None

    def _close_kept(self) -> None:
        for kept in self._kept.values():
            with suppress(IndexError):
                while True:
                    kept.pop().close()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """For work that only reads. In READ COMMITTED each statement sees a state of its own anyway."""
        with self._connection(self.singles) as connection:
            self.dialect.read_on(connection)
            yield connection

    def open_ahead(self) -> None:
        """Open the connections of a claim and a finish, which the first entries would wait for."""
        engine = self.singles if self.dialect.capabilities.moves_at_once else self.engine
        if self._most_kept > 1:
            with self._connection(engine), self._connection(engine):
                pass

    @contextmanager
    def beside(self) -> Iterator[Connection]:
        """A connection for what is held while others are needed, a lock mostly. No pool has it, so it takes none of theirs."""
        connection = self.engine.connect()
        driver: Any = connection.connection.dbapi_connection
        connection.detach()
        try:
            with connection:
                yield connection
        finally:
            # One that was given up, as after an interrupt, would stay open with its locks: no pool closes it.
            errors: Any = self.engine.dialect.loaded_dbapi
            with suppress(errors.Error):  # closed already, mostly
                driver.close()

    @contextmanager
    def lazy(self) -> Iterator[Connection]:
        """A connection whose transaction the caller ends; on SQLite it takes the write lock at its first write."""
        with self.lent.connect() as connection:
            lazy = connection.execution_options(**{LAZY: True})
            with self.dialect.lending(lazy):
                yield lazy

    def write(self, work: Callable[[Connection], T], undo: Callable[[], None] = _nothing) -> T:
        """Run `work` in a write transaction, again (at most `TRANSIENT_TRIES` times) after a deadlock or its like.

        Never again after a COMMIT that gave no answer, nor when a statement's time has passed since the first. Each run
        that fails calls `undo` before anybody else may write: SQLite gives ids that were rolled back out again.
        """
        within = partial(_within, work)
        return self._retrying(lambda: self._run(self.engine, within, self.dialect.turn(), undo))

    def write_single(self, work: Callable[[Connection], T], then: Callable[[Connection, T], R]) -> R:
        """As `write`, for work that is one statement, which commits by itself: one round trip.

        `then` makes the answer of what that has returned, on the same connection, while others may write.
        """
        return self._retrying(lambda: self._alone_and(work, then))

    def insert_single(self, work: Callable[[Connection], T]) -> T:
        """As `write_single`, for an INSERT of values."""
        noted = partial(self._noted, work)
        return self._retrying(lambda: self._run(self.inserts, noted, self.dialect.turn()))

    def fetch(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, which only reads, again after a transient error."""

        def reading(connection: Connection) -> T:
            self.dialect.read_on(connection)
            return work(connection)

        return self._retrying(lambda: self._run(self.singles, reading, NO_TURN))

    def _retrying(self, once: Callable[[], T]) -> T:
        # Else a network that swallows everything, or a lock that stays, would hold a caller for each try anew.
        deadline = time.monotonic() + self._limits.statement
        try:
            return once()
        except DBAPIError as error:
            if not self._may_succeed(error) or time.monotonic() >= deadline:
                raise
        again = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._may_succeed),
            stop=tenacity.stop_after_attempt(TRANSIENT_TRIES - 1)
            | tenacity.stop_after_delay(deadline - time.monotonic()),
            wait=tenacity.wait_random_exponential(multiplier=0.01, max=1.0),
            reraise=True,
        )
        return again(once)

    def _may_succeed(self, error: BaseException) -> bool:
        """Whether a transaction that failed like this may be run again: it has not committed, and the cause passes.

        A connection that turned out to be broken, as all in the pool are after a restart of the server, is replaced.
        """
        if not isinstance(error, DBAPIError):
            return False
        notes = getattr(error, "__notes__", ())
        if COMMITTED in notes:
            return False
        broken = error.connection_invalidated and AT_COMMIT not in notes
        # A server that answers a COMMIT with a deadlock or its like has rolled back.
        return broken or self.dialect.is_transient(error)

    def _count(self, _driver: object, _record: object) -> None:
        self.opened += 1

    def _let_go(self, _connection: object, record: ConnectionPoolEntry) -> None:
        """A connection that was in use when the pool was disposed of comes back to nobody: close it."""
        if self._closed and os.getpid() == self._pid:
            record.invalidate()

    @property
    def closed(self) -> bool:
        """Whether connections are closed as soon as they come back."""
        return self._closed

    def close(self) -> None:
        """Close all connections that are not in use; those in use close when they come back."""
        # In a child process of a fork the connections are still the parent's.
        own, again = os.getpid() == self._pid, self._closed
        self._closed = True
        if own:
            self._close_kept()
        for engine in self.engines:
            engine.dispose(close=own)
            if own and not again:
                self.dialect.closed()


def _has_aged(connection: Connection) -> bool:
    """Whether a pool would replace the connection, by the application's `pool_recycle`."""
    seconds: float = connection.engine.pool._recycle  # noqa: SLF001
    record: Any = connection.connection._connection_record  # noqa: SLF001
    return seconds >= 0 and time.time() - record.starttime > seconds


def _within(work: Callable[[Connection], T], connection: Connection) -> T:
    """Run `work` in a transaction; one that failed is rolled back by who has the connection."""
    transaction = connection.begin()
    answer = work(connection)
    _commit(connection, transaction)
    return answer


def _commit(connection: Connection, transaction: RootTransaction) -> None:
    try:
        transaction.commit()
    except BaseException as error:
        # SQLite keeps the transaction open after a failed COMMIT: the next user of this connection would commit it.
        connection.invalidate()
        error.add_note(AT_COMMIT)
        raise


def _own_url(target: str | URL | Engine) -> URL:
    url = target.url if isinstance(target, Engine) else make_url(target)
    backend = url.get_backend_name()
    if backend not in DRIVERS:
        raise UnsupportedDatabaseError(
            f"{backend} is not supported; use one of {', '.join(sorted(DRIVERS))}. Nothing was connected or written."
        )
    url = url.set(drivername=DRIVERS[backend])
    if backend != "sqlite":
        return url
    if sqlite_file.is_in_memory(url):
        raise UnsupportedDatabaseError(
            "an SQLite database in memory dies with its connection; name a file, or use the in-memory bus"
        )
    return sqlite_file.absolute(url)
