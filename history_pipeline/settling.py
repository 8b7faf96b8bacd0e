"""Waiting until every transaction that has written to a history by now has ended, without holding up any writer.

An uncommitted row shows to nobody, but each database can tell in its own way that it may be there: PostgreSQL by the
locks that writers hold on the table, to every user; MySQL and MariaDB by a read of uncommitted rows; SQLite by its one
write lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Connection, Table, func, select, text
from sqlalchemy.exc import DBAPIError

from sql.database import Database

_PAUSE_SECONDS = 0.02

_WRITERS = text(
    "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' "
    "AND relation = CAST(:table AS regclass) "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def settled(database: Database, table: Table, after: datetime, until: datetime, *, seconds: float) -> bool:
    """Whether, within `seconds`, all rows inserted by now that ended in (`after`, `until`] were committed or undone."""
    return _SETTLED[database.dialect.name](database, table, after, until, time.monotonic() + seconds)


def _postgresql(
    database: Database, table: Table, _after: datetime, _until: datetime, deadline: float
) -> bool:
    def writers(connection: Connection) -> set[str]:
        quoted = connection.dialect.identifier_preparer.quote(table.name)
        return set(connection.execute(_WRITERS, {"table": quoted}).scalars())

    # Those of the first look only: on a busy queue there are always new ones.
    waited_for = database.fetch(writers)
    return _comes_true(lambda: not waited_for & database.fetch(writers), deadline) if waited_for else True


def _mysql(database: Database, table: Table, after: datetime, until: datetime, deadline: float) -> bool:
    ended = table.c.finished_date
    statement = select(func.count(), func.sum(table.c.record_id)).where(ended > after, ended <= until)

    def same() -> bool:
        with database.engine.connect() as connection:
            dirty = connection.execution_options(isolation_level="READ UNCOMMITTED")
            inserted = tuple(dirty.execute(statement).one())
        return database.fetch(lambda connection: tuple(connection.execute(statement).one())) == inserted

    return _comes_true(same, deadline)


def _sqlite(database: Database, _table: Table, _after: datetime, _until: datetime, deadline: float) -> bool:
    seconds = max(0.1, deadline - time.monotonic())
    # One of its own, which waits for the lock for half of its statements' time.
    waiting = Database(database.url, statement_timeout_seconds=2 * seconds)
    try:
        with waiting.begin():
            return True
    except DBAPIError as error:
        if not waiting.dialect.is_transient(error):
            raise
        return False
    finally:
        waiting.close()


_SETTLED: dict[str, Callable[[Database, Table, datetime, datetime, float], bool]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
    "sqlite": _sqlite,
}


def _comes_true(condition: Callable[[], bool], deadline: float) -> bool:
    """Ask until it is true or the time is over: no database tells when somebody else's transaction ends."""
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True
