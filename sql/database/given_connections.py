"""Drivers' connections that callers gave, each as a Connection of SQLAlchemy."""

from __future__ import annotations

import threading
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.pool import ConnectionPoolEntry, NullPool
from sqlalchemy.util import memoized_property

from sql.database.engines import Engines
from sql.drivers.raw import RawDriver


class GivenConnections:
    """Wraps connections to one database. Their transactions and they themselves stay as they are.

    The engine that it needs lasts as long as this object: to make one takes a fifth of a post's
    time.
    """

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._offered = _Offered()

    def wrapped(self, driver: Any) -> Connection:
        """A connection on the one given, whose cursors return tuples."""
        return self._offered.taken(_TupleRows(driver, self._engines.dialect.raw), self._passive)

    @memoized_property
    def _passive(self) -> Engine:
        """An engine whose dialect never begins, commits, rolls back or closes.

        The dialect is ready for use: a first connection of the library has completed it.
        """
        engine = self._engines.transactions
        with engine.connect():
            pass  # the first connection completes the dialect
        kind = type(engine.dialect)
        quiet = dict.fromkeys(
            ("do_begin", "do_commit", "do_rollback", "do_close", "do_terminate"), _do_nothing
        )
        passive = type(
            f"Passive{kind.__name__}", (kind,), {**quiet, "supports_statement_cache": True}
        )
        dialect = passive(dbapi=engine.dialect.dbapi)
        dialect.__dict__.update({**engine.dialect.__dict__, "name": engine.dialect.name})
        pool = _Lent(self._offered.take, reset_on_return=None)
        return Engine(pool, dialect, self._engines.url)


class _TupleRows:
    """A raw connection whose cursors return tuples, for any row factory that its owner has set."""

    def __init__(self, driver: Any, raw: RawDriver) -> None:
        self._driver = driver
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def cursor(self, *arguments: Any, **options: Any) -> Any:
        return self._raw.tuple_cursor(self._driver, *arguments, **options)


class _Lent(NullPool):
    """A pool of connections that are others': given back, they stay open."""

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        del record


class _Offered(threading.local):
    """Connections that are about to be wrapped, in this thread.

    The last one comes first: a signal's handler that posts may come between.
    """

    def __init__(self) -> None:
        self._connections = list[_TupleRows]()

    def taken(self, offered: _TupleRows, engine: Engine) -> Connection:
        """A connection of a passive engine, whose pool takes the one offered."""
        before = len(self._connections)
        try:
            self._connections.append(offered)
            return engine.connect()
        finally:
            del self._connections[before:]

    def take(self) -> Any:
        """The connection that the pool of a passive engine opens."""
        return self._connections.pop()


def _do_nothing(*_arguments: object, **_options: object) -> None:
    """The transaction is the caller's."""
