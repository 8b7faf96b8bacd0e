"""The transaction that a handler writes in, and whether it is still the one that it was given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, DisconnectionError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from sql.dialect import Dialect
from sql.registry import BACKENDS
from work_queue.workers.lease import NotBegunError, NotWrittenError
from work_queue.workers.options import AnyEngine

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection


class Transaction:
    """What goes wrong in it: a lost connection is told apart from a failure of the task."""

    def __init__(self) -> None:
        self._begun = False
        self._failed = False
        """Whether the handler has."""

    @contextmanager
    def whole(self) -> Iterator[None]:
        """A block that begins the transaction, and commits it.

        Raises NotBegunError if there is no connection, NotWrittenError if the database is lost, and
        what the block raises else.
        """
        try:
            yield
        except (DBAPIError, PoolTimeoutError, OSError) as error:
            cut = not isinstance(error, DBAPIError) or error.connection_invalidated
            if self._failed or (self._begun and not cut):
                raise
            raise (NotWrittenError if self._begun else NotBegunError) from error

    @contextmanager
    def handler(self, connection: Connection | AsyncConnection) -> Iterator[None]:
        """A block in which the handler runs.

        Raises NotWrittenError if it has lost its `connection`, and what it raises else.
        """
        self._begun = True
        try:
            yield
        except BaseException as error:
            if isinstance(error, SQLAlchemyError) and connection.invalidated:
                raise NotWrittenError from error
            self._failed = True
            raise
        if connection.invalidated:
            lost = DisconnectionError("the handler has gone on without its connection")
            raise NotWrittenError from lost


def has_one_writer(engine: AnyEngine) -> bool:
    """Whether its database lets one transaction write at a time."""
    return BACKENDS[engine.dialect.name].dialect().capabilities.one_writer


def mark(connection: Connection) -> None:
    """Mark the transaction that has begun on a connection of the application's."""
    _dialect(connection).mark(connection)


def check(connection: Connection) -> None:
    """Raises RuntimeError if the marked transaction is over.

    SQLite's is not marked: there, a savepoint before the first write would be a transaction.
    """
    try:
        _dialect(connection).unmark(connection)
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        raise RuntimeError(
            "the handler ended its transaction, to which the modification belongs: by COMMIT or "
            "ROLLBACK, by a statement that commits by itself (DDL, on MariaDB and MySQL), or by "
            "going on after an error that undid it (a deadlock; on PostgreSQL any error of the "
            "database). Nothing was modified; let such errors pass, and leave the transaction alone"
        ) from error


def _dialect(connection: Connection) -> Dialect:
    return BACKENDS[connection.dialect.name].dialect()
