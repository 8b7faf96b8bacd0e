"""The caller's connection, of any kind, as one SQLAlchemy Connection.

Its transaction is never touched.

No event proves a commit: Core's `commit` fires before COMMIT is sent, the Session's also for
savepoints, and a failed transaction may end as a rollback without any event (the experiments are in
`tests/experiments`). So a commit or rollback is only announced from here, and rows are looked up
before anything starts. A Session's connection goes back to its pool when its transaction is over:
that is announced instead, so that the first look finds the committed entries.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, TwoPhaseTransaction, event
from sqlalchemy.exc import DBAPIError, InvalidRequestError, ResourceClosedError
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.pool import ConnectionPoolEntry, Pool

from queue_core.errors import InvalidConnectionError, WriteLockError
from queue_core.runtime.awaitable import is_asynchronous
from queue_core.runtime.callers import CallersConnection
from queue_core.runtime.shown import a_kind
from queue_core.storage.tables_of_caller import (
    check_map,
    check_place,
    check_place_once,
    check_server,
    foreign,
)
from sql.database import Database
from sql.drivers.hot_path import LAZY
from sql.drivers.raw import RawDriver, UnusableConnectionError
from sql.registry import raw_driver_of, raw_drivers

_pending: weakref.WeakKeyDictionary[Connection, list[Callable[[], None]]] = (
    weakref.WeakKeyDictionary()
)
"""The functions to call at the end of each connection's transaction.

`Connection.info` is out of reach once it has broken.
"""
_AT_RELEASE = "stickybus_at_release"
"""In a connection's `info`: the functions to call when it goes back to its pool, or has broken."""


@dataclass(frozen=True)
class Borrowed:
    """A caller's connection.

    `raw`: SQLAlchemy does not see its commit. `released`: it goes back to its pool when its
    transaction has ended. `on_commit` calls a function after the commit.
    """

    connection: Connection
    raw: bool
    released: bool = False
    on_commit: Callable[[Callable[[], None]], None] | None = None

    @property
    def announces(self) -> bool:
        """Whether an event will announce the end of its transaction, and soon."""
        if self.on_commit is not None:
            return True
        return not (self.raw or self.autocommits or self.has_two_phases)

    @property
    def has_two_phases(self) -> bool:
        """Whether its transaction is to be prepared; PostgreSQL prepares none that notifies."""
        if self.raw:
            return _driver(self.connection).has_two_phases(
                self.connection.connection.driver_connection
            )
        return isinstance(self.connection.get_transaction(), TwoPhaseTransaction)

    @property
    def autocommits(self) -> bool:
        """Whether each statement is committed by itself."""
        if LAZY in self.connection.get_execution_options():
            return False
        return _driver(self.connection).autocommits(self.connection, raw=self.raw)

    def when_ended(self, announce: Callable[[], None]) -> None:
        """Call `announce` when the transaction has ended, or is about to."""
        if self.on_commit is not None:
            self.on_commit(announce)
            return
        _listen(self.connection.engine)
        if self.released:
            self.connection.info.setdefault(_AT_RELEASE, []).append(announce)
        else:
            _pending.setdefault(self.connection, []).append(announce)


def borrow(callers: CallersConnection | None, database: Database, schema: str | None) -> Borrowed:
    """Wrap the value that a user passes as `connection=`.

    `schema` is that of the tables; None if they are named without one.

    A SQLAlchemy Connection or Session, Django's connection, or a raw psycopg, PyMySQL or sqlite3
    connection. Raises InvalidConnectionError if it is closed, leads to another database, or is
    asynchronous (its calls have awaitable twins).
    """
    if is_asynchronous(callers):
        raise InvalidConnectionError(
            f"{a_kind(type(callers))} was passed to a synchronous call. Nothing was written. "
            "Await the call's twin: its name ends in _async."
        )
    if isinstance(callers, Session | scoped_session):
        connection = _of_session(callers)
        # Of a Session on a Connection, its owner decides when that is released.
        released = isinstance(callers.get_bind(), Engine)
        return _checked(connection, database, schema, released=released)
    if isinstance(callers, Connection):
        return _checked(callers, database, schema, released=False)
    if hasattr(callers, "ensure_connection"):
        return _of_django(callers, database)
    return Borrowed(_wrap_raw(callers, database), raw=True)


def _of_django(callers: Any, database: Database) -> Borrowed:
    callers.ensure_connection()
    connection = _wrap_raw(callers.connection, database)
    if callers.in_atomic_block:
        return Borrowed(connection, raw=False, on_commit=callers.on_commit)
    return Borrowed(connection, raw=True)


def _of_session(session: Session | scoped_session[Session]) -> Connection:
    try:
        return session.connection()
    except (InvalidRequestError, ResourceClosedError) as error:
        raise InvalidConnectionError(
            f"the session can't be used: {error}. Nothing was written; roll it back, or pass "
            "another."
        ) from error


def _checked(
    connection: Connection, database: Database, schema: str | None, *, released: bool
) -> Borrowed:
    if connection.closed or connection.invalidated:
        raise InvalidConnectionError(
            "the connection passed in is closed. Nothing was written; pass an open one."
        )
    dialect, theirs = database.dialect, connection.dialect.name
    if theirs not in dialect.reached_as:
        raise foreign(theirs, dialect.name)
    check_map(connection, schema)
    check_place_once(connection, database)
    check_server(connection, database)
    return Borrowed(connection, raw=False, released=released)


def _wrap_raw(callers: Any, database: Database) -> Connection:
    module, raw = type(callers).__module__.partition(".")[0], database.dialect.raw
    known = module in raw_drivers() and hasattr(callers, "cursor")  # which a cursor has not
    if not known or type(callers).__name__.startswith("Async"):
        raise _unknown(callers)
    if module != raw.module:
        raise foreign(f"{module}", database.dialect.name)
    try:
        check_place(raw.place_of(callers), database)
    except UnusableConnectionError as error:
        raise InvalidConnectionError(
            f"the connection passed in {error}. Nothing was written; pass an open one."
        ) from error
    connection = database.given.wrapped(callers)
    check_server(connection, database, callers)
    return connection


def _unknown(given: object) -> InvalidConnectionError:
    hint = " That is a cursor: pass its connection." if hasattr(given, "fetchone") else ""
    return InvalidConnectionError(
        f"connection= got {type(given).__module__}.{type(given).__qualname__}, which is no "
        f"connection that can be used.{hint} Nothing was written. Pass a SQLAlchemy Connection or "
        "Session, Django's connection, or a psycopg, PyMySQL or sqlite3 connection."
    )


def _driver(connection: Connection) -> RawDriver:
    return raw_driver_of(connection.dialect.name)


_listened: weakref.WeakSet[Engine] = weakref.WeakSet()
_listened_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
"""Engines made by `execution_options` share one pool, and come and go."""


def _listen(engine: Engine) -> None:
    if engine not in _listened:
        _listened.add(engine)
        event.listen(engine, "commit", _ended)
        event.listen(engine, "rollback", _ended)
    if (pool := engine.pool) not in _listened_pools:
        _listened_pools.add(pool)
        # A pool that replaces one that was disposed of has its listeners already.
        if _released not in pool.dispatch.checkin:
            event.listen(pool, "checkin", _released)
            event.listen(pool, "invalidate", _released)


def _ended(connection: Connection) -> None:
    for announce in _pending.pop(connection, ()):
        announce()


def _released(_driver: object, record: ConnectionPoolEntry, *_error: object) -> None:
    for announce in record.info.pop(_AT_RELEASE, ()):
        announce()


def unusable(error: InvalidRequestError, queue_name: str | None) -> InvalidConnectionError:
    """The error of a connection on which SQLAlchemy lets nobody send a statement."""
    subject = f"{queue_name}: " if queue_name else ""
    return InvalidConnectionError(
        f"{subject}the connection passed in can't be used: {error} Nothing was written.",
        queue_name=queue_name,
    )


def explain(error: DBAPIError, database: Database, queue_name: str) -> Exception:
    """The error to raise for a statement that failed in the caller's transaction."""
    if database.dialect.capabilities.one_writer and database.dialect.is_transient(error):
        return WriteLockError(
            f"{queue_name}: the caller's transaction could not take SQLite's write lock "
            f"({error.orig}). Nothing was written. A transaction that reads first and writes "
            "later fails when another wrote in between: begin it with BEGIN IMMEDIATE.",
            queue_name=queue_name,
        )
    return error
