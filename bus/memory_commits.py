"""Commits of callers' connections, for the bus in memory, as SQLAlchemy's events show them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy import Connection, Engine, event
from sqlalchemy.orm import Session, scoped_session

from queue_core.errors import InvalidConnectionError
from queue_core.runtime.callers import CallersConnection
from queue_core.runtime.shown import a_kind
from queue_core.storage.callers_connection import Borrowed


@dataclass
class _Pending:
    """Deliveries at a connection's commit; `before`: how many came before each open savepoint."""

    deliveries: list[Callable[[], None]] = field(default_factory=list)
    before: list[int] = field(default_factory=list)


_pending: weakref.WeakKeyDictionary[Connection, _Pending] = weakref.WeakKeyDictionary()
_listened: weakref.WeakSet[Engine] = weakref.WeakSet()


def at_commit(connection: Connection, deliver: Callable[[], None]) -> None:
    """Call `deliver` when the connection's transaction begins to commit.

    It is called at once if each statement commits by itself.
    """
    if Borrowed(connection, raw=False).autocommits:
        deliver()
        return
    if not connection.in_transaction():
        connection.begin()  # as the persistent bus's INSERT would
    engine = connection.engine
    if engine not in _listened:
        _listened.add(engine)
        for name in ("commit", "commit_twophase"):
            event.listen(engine, name, _committed)
        for name in ("rollback", "rollback_twophase"):
            event.listen(engine, name, _rolled_back)
        event.listen(engine, "savepoint", _savepoint_began)
        event.listen(engine, "release_savepoint", _savepoint_released)
        event.listen(engine, "rollback_savepoint", _savepoint_rolled_back)
    _pending.setdefault(connection, _Pending()).deliveries.append(deliver)


def connection_of(connection: CallersConnection) -> Connection:
    """SQLAlchemy's connection, whose commits are told. Raises InvalidConnectionError."""
    if isinstance(connection, Session | scoped_session):
        return connection.connection()
    if isinstance(connection, Connection):
        return connection
    raise InvalidConnectionError(
        "the in-memory bus takes a SQLAlchemy Connection or Session, not "
        f"{a_kind(type(connection))}: only their commits are told to it. Nothing was posted."
    )


def _committed(connection: Connection, *_two_phase: object) -> None:
    for deliver in _pending.pop(connection, _Pending()).deliveries:
        deliver()


def _rolled_back(connection: Connection, *_two_phase: object) -> None:
    _pending.pop(connection, None)


def _savepoint_began(connection: Connection, _name: str | None) -> None:
    if connection in _pending:
        pending = _pending[connection]
        pending.before.append(len(pending.deliveries))


def _savepoint_released(connection: Connection, _name: str, _context: None) -> None:
    if connection in _pending and _pending[connection].before:
        _pending[connection].before.pop()


def _savepoint_rolled_back(connection: Connection, _name: str, _context: None) -> None:
    if connection in _pending:
        pending = _pending[connection]
        # A savepoint that began before the first post was not noted.
        del pending.deliveries[pending.before.pop() if pending.before else 0 :]
