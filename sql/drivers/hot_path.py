"""The driver's own cursor, for statements that a node runs all the time.

SQLAlchemy's execution takes a fifth of a lone claim's time. It is left out on our own connections,
while nobody listens to its events. Text and parameters are the same either way: only the last call
differs. Errors are raised as SQLAlchemy raises them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, TypeAlias

from sqlalchemy import Connection, Dialect, Select, UpdateBase
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

OURS = "stickybus_ours"
"""Option of connections that no application has; its value is their `Use`."""


LAZY = "stickybus_lazy"
"""Option of the library's connections that are lent to a user's code.

SQLite locks at their first write.
"""


class Use(Enum):
    """The use of one of our connections."""

    TRANSACTIONS = auto()
    LENT = auto()
    """Transactions in which a user's code writes."""
    AUTOCOMMIT = auto()
    """Each statement is a transaction."""
    INSERTS = auto()
    """As AUTOCOMMIT, each an INSERT of its parameters."""


Statement: TypeAlias = Select[Any] | UpdateBase
Write = Callable[[Any], Any]
"""Makes of a value the one that the driver takes."""


def writers(types: Mapping[str, TypeEngine[Any]], dialect: Dialect) -> dict[str, Write]:
    """The conversions of values that the driver doesn't take as they are, by name."""
    found = {
        name: kind.dialect_impl(dialect).bind_processor(dialect) for name, kind in types.items()
    }
    return {name: write for name, write in found.items() if write is not None}


class Prepared:
    """A statement as the driver takes it.

    Its parameters and its answers are converted as SQLAlchemy does.
    """

    def __init__(self, statement: Statement, dialect: Dialect) -> None:
        compiled: Any = statement.compile(dialect=dialect)
        self.text = str(compiled)
        self._constants: Mapping[str, Any] = compiled.params
        self._order: Sequence[str] | None = compiled.positiontup if compiled.positional else None
        self._writers = writers({name: one.type for name, one in compiled.binds.items()}, dialect)
        columns = statement.exported_columns
        readers = [
            column.type.dialect_impl(dialect).result_processor(dialect, None) for column in columns
        ]
        self._readers = [(place, read) for place, read in enumerate(readers) if read is not None]

    def bound(self, given: Mapping[str, Any]) -> Any:
        """The parameters, those that stand in the statement among them."""
        values = {**self._constants, **given}
        for name, write in self._writers.items():
            values[name] = write(values[name])
        return values if self._order is None else tuple(values[name] for name in self._order)

    def read(self, rows: list[Sequence[Any]]) -> list[Sequence[Any]]:
        """The driver's rows, as SQLAlchemy's columns would hold them."""
        if not self._readers:
            return rows
        converted = list[Sequence[Any]]()
        # The rows of a claim have few dates between them: one of its end, and those of their posts.
        readers = [(place, read, dict[Any, Any]()) for place, read in self._readers]
        for row in rows:
            values = list(row)
            for place, read, known in readers:
                value = values[place]
                if value not in known:
                    known[value] = read(value)
                values[place] = known[value]
            converted.append(values)
        return converted


def send(connection: Connection, statement: str, parameters: Any) -> Any:
    """Run a text on the driver's cursor, or by SQLAlchemy where `use_of` says so.

    Returns:
        An object with `fetchall`, `lastrowid` and `rowcount`.
    """
    if use_of(connection) is None:
        return connection.exec_driver_sql(statement, parameters)
    try:
        cursor = connection.connection.cursor()
        cursor.execute(statement, parameters)
    except BaseException as error:
        cut(connection, statement, error)
        raise
    return cursor


def cut(connection: Connection, statement: str, error: BaseException) -> None:
    """Raise an error of the driver's as `connection` would.

    Any other is left to be raised, the connection given up.
    """
    _raise_as_sqlalchemy(connection, statement, error)
    if not isinstance(error, UnicodeError):
        # Of a signal, most likely: the answer that is outstanding would be taken for the next
        # statement's.
        connection.invalidate(error)


@contextmanager
def driver_errors(connection: Connection, statement: str) -> Iterator[None]:
    """Raise errors of the driver's own calls as `connection` would."""
    try:
        yield
    except BaseException as error:
        _raise_as_sqlalchemy(connection, statement, error)
        raise


def use_of(connection: Connection) -> Use | None:
    """The use of a connection. None if its statements have to go by way of SQLAlchemy.

    So they have if the transaction is still to begin, too.
    """
    if not connection.in_transaction() or (
        # Of the connection or engine itself, of any kind; SQLAlchemy looks there first, too.
        (connection._has_events or connection.engine._has_events)  # noqa: SLF001
        and (connection.dispatch.before_cursor_execute or connection.dispatch.after_cursor_execute)
    ):
        return None
    use: Use | None = connection.get_execution_options().get(OURS)
    return use


def _raise_as_sqlalchemy(connection: Connection, statement: str, error: BaseException) -> None:
    errors: Any = connection.dialect.loaded_dbapi
    if isinstance(error, errors.Error):
        broken = connection.dialect.is_disconnect(
            error, connection.connection.driver_connection, None
        )
        if broken:
            # As SQLAlchemy does: the others of the pool are likely to be broken.
            connection.engine.pool._invalidate(connection.connection, error)  # noqa: SLF001
            connection.invalidate(error)
        raise DBAPIError.instance(
            statement,
            None,
            error,
            errors.Error,
            connection_invalidated=broken,
            dialect=connection.dialect,
        ) from error
    if not isinstance(error, Exception):
        # An interrupt: the answer that is outstanding would be taken for the next statement's.
        connection.invalidate(error)
