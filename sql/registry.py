"""Which classes serve which database. The only place that names all of them."""

from __future__ import annotations

from sqlalchemy import Engine

from sql.dialect import Dialect
from sql.doctor.base import Health
from sql.mariadb.dialect import MariaDB
from sql.mysql.dialect import MySQL
from sql.mysql.doctor import MySQLHealth
from sql.postgresql.dialect import PostgreSQL
from sql.postgresql.doctor import PostgreSQLHealth
from sql.sqlite.dialect import SQLite
from sql.sqlite.doctor import SQLiteHealth

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


_DOCTORS: dict[str, type[Health]] = {
    "sqlite": SQLiteHealth,
    "postgresql": PostgreSQLHealth,
    "mysql": MySQLHealth,
    "mariadb": MySQLHealth,
}


def health_of(backend: str) -> Health:
    """The questions to a database of this kind: the name of a dialect, or of a URL's backend."""
    return _DOCTORS[backend]()
