"""The transaction that a handler writes in, and whether it is still the one that it was given."""

from __future__ import annotations

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from sql.dialect import Dialect
from sql.registry import BACKENDS


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
