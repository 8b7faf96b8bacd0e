"""Connections that stay out of their pools between transactions.

To check one out and in costs a fifth of a post.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DisconnectionError, ResourceClosedError

from sql.database.engines import Engines
from sql.writer_lock import WriterLock

T = TypeVar("T")

KEPT, FREE = 4, 2
"""Connections that at most are kept out of a pool, and that at least are left in it."""


class KeptConnections:
    """Takes connections for one piece of work, and keeps those that are whole after it."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._dialect = engines.dialect
        self._kept = {engine: deque[Connection]() for engine in engines.all}
        self.most = engines.spare(FREE, KEPT)
        """The connections that are kept of each pool."""

    def run(
        self,
        engine: Engine,
        work: Callable[[Connection], T],
        lock: WriterLock,
        undo: Callable[[], None] | None = None,
    ) -> T:
        """Run `work` on a connection of a pool.

        An exception that comes anywhere from outside leaves nothing behind.

        A context manager could not promise that: one that is cut off at its end leaves the rest to
        the garbage collector.
        """
        held = list[Connection]()
        try:
            try:
                lock.begin()
                held.append(self._take(engine))
                answer = work(held[0])
                self._keep(engine, held)
                lock.end()
            # No `try` inside: an exception that comes at its line would skip every handler here.
            except BaseException as error:
                self._drop(held, error)
                if undo is not None:
                    undo()
                lock.end()
                raise
        except BaseException:
            # A second exception may have cut the handler of the first one off.
            _give_up(held)
            lock.end()
            raise
        return answer

    @contextmanager
    def connection(self, engine: Engine) -> Iterator[Connection]:
        """One of a pool, for a block."""
        held = list[Connection]()
        try:
            try:
                held.append(self._take(engine))
                yield held[0]
                self._keep(engine, held)
            except BaseException as error:
                self._drop(held, error)
                raise
        except BaseException:
            _give_up(held)
            raise

    def _take(self, engine: Engine) -> Connection:
        return self._take_kept(engine) or engine.connect()

    def _keep(self, engine: Engine, held: list[Connection]) -> None:
        """Keep the connection that is held.

        It is held or kept, never both: the next moment another thread may have a kept one.
        """
        kept = self._kept[engine]
        if len(kept) < self.most:
            kept.append(held.pop())
        else:
            held.pop().close()
        if self._engines.closed:
            self.close()

    def _drop(self, held: list[Connection], error: BaseException) -> None:
        """Give the held connection back after an error.

        It is closed unless it is between transactions for sure. It is held until that is done.
        """
        if not held:
            return
        connection = held[0]
        if connection.invalidated:  # others are likely to be broken, too: the pool replaces its own
            connection.close()
            self.close()
        elif self._settles(connection, error):
            connection.close()
        else:
            # Not by `close`: SQLAlchemy may have been cut off in the middle of its begin.
            connection.invalidate(error)
        held.clear()

    def _settles(self, connection: Connection, error: BaseException) -> bool:
        """End the transaction that may be open; False if that is not sure."""
        if self._dialect.may_have_cut_off(error):
            return False
        try:
            if (transaction := connection.get_transaction()) is not None:
                transaction.rollback()
            driver: Any = connection.connection.driver_connection
            if not self._dialect.is_idle(driver):  # begun where SQLAlchemy knows of none
                driver.rollback()
            return not connection.invalidated and self._dialect.is_idle(driver)
        except Exception:  # noqa: BLE001 -- whatever a driver says of a connection that is closed
            return False

    def _take_kept(self, engine: Engine) -> Connection | None:
        # At this age, by the application's `pool_recycle`, the pool would replace a connection.
        recycled: float = engine.pool._recycle  # noqa: SLF001
        kept = self._kept[engine]
        while kept:
            try:
                connection = kept.pop()
            except IndexError:  # another thread had it
                break
            if recycled >= 0 and _age_seconds(connection) > recycled:
                connection.close()  # its pool opens another for it
                continue
            try:
                self._dialect.check_open(connection.connection.dbapi_connection)
            except DisconnectionError as error:
                connection.invalidate(error)
                connection.close()
            else:
                return connection
        return None

    def close(self) -> None:
        """Give all that are kept back to their pools."""
        for kept in self._kept.values():
            with suppress(IndexError):
                while True:
                    kept.pop().close()


def _give_up(held: list[Connection]) -> None:
    """Close a connection that is still held, in whatever state it is."""
    for connection in held:
        with suppress(ResourceClosedError):  # it was given back already
            connection.invalidate()


def _age_seconds(connection: Connection) -> float:
    record: Any = connection.connection._connection_record  # noqa: SLF001 -- the age has no public name
    age: float = time.time() - record.starttime
    return age
