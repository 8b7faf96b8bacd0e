"""One module per database: its connections and locks, and the statements that it writes unlike `sql.statements`."""

from __future__ import annotations

from sqlalchemy import Engine

from sql.dialects.base import Dialect
from sql.dialects.mariadb import MariaDB
from sql.dialects.mysql import MySQL
from sql.dialects.postgresql import PostgreSQL
from sql.dialects.sqlite import SQLite

DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
"""The driver that our own connections use, by SQLAlchemy's backend name."""

_DIALECTS: dict[str, type[Dialect]] = {
    "sqlite": SQLite,
    "postgresql": PostgreSQL,
    "mysql": MySQL,
    "mariadb": MariaDB,
}


def dialect_of(engine: Engine) -> Dialect:
    """The dialect of an engine made for one of `DRIVERS`; on MySQL's drivers it asks the server which of the two it is."""
    backend = engine.dialect.name
    if backend == "mysql":
        with engine.connect():
            backend = "mariadb" if getattr(engine.dialect, "is_mariadb", False) else backend
    return _DIALECTS[backend]()
