"""The engine of an experiment.

It is on an empty database, with the session settings of the product.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from sqlalchemy import URL, Connection, Engine, create_engine, event


@pytest.fixture
def engine(empty_database_url: URL) -> Iterator[Engine]:
    """An engine on an empty database: SQLite in WAL mode, the servers at READ COMMITTED."""
    if empty_database_url.get_backend_name() == "sqlite":
        engine = create_engine(empty_database_url)
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        engine = create_engine(empty_database_url, isolation_level="READ COMMITTED")
    yield engine
    engine.dispose()


def _configure_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    # The driver's own BEGIN comes late, after a SAVEPOINT for instance; ours comes with the
    # transaction.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
        connection.exec_driver_sql("BEGIN")
