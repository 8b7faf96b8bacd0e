"""The classes that serve each database. No other module knows the classes of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from sqlalchemy import URL, create_engine

from sql.dialect import Dialect
from sql.doctor.base import Doctor
from sql.drivers.raw import RawDriver
from sql.errors import MissingDriverError, UnsupportedDatabaseError
from sql.mariadb.dialect import MariaDB
from sql.mariadb.doctor import MariaDBDoctor
from sql.mysql.dialect import MySQL
from sql.mysql.doctor import MySQLDoctor
from sql.postgresql.dialect import PostgreSQL
from sql.postgresql.doctor import PostgreSQLDoctor
from sql.sqlite.dialect import SQLite
from sql.sqlite.doctor import SQLiteDoctor


@dataclass(frozen=True)
class Backend:
    """The classes that serve one kind of database."""

    driver: str
    """The driver of the library's connections, as a URL of SQLAlchemy names it."""
    dialect: type[Dialect]
    doctor: type[Doctor]
    extra: str | None = None
    """The extra that installs the driver; None if Python has it."""


BACKENDS = {
    "sqlite": Backend("sqlite+pysqlite", SQLite, SQLiteDoctor),
    "postgresql": Backend("postgresql+psycopg", PostgreSQL, PostgreSQLDoctor, "postgresql"),
    "mysql": Backend("mysql+pymysql", MySQL, MySQLDoctor, "mysql"),
    "mariadb": Backend("mariadb+pymysql", MariaDB, MariaDBDoctor, "mysql"),
}
"""By SQLAlchemy's name of the backend in a URL."""


def own_url(url: URL) -> URL:
    """The URL by which our own connections reach a database. Raises UnsupportedDatabaseError."""
    backend = BACKENDS.get(url.get_backend_name())
    if backend is None:
        given = url.get_backend_name()
        near = get_close_matches(given, BACKENDS, n=1)
        meant = f" Did you mean {near[0]}?" if near else ""
        raise UnsupportedDatabaseError(
            f"{given} is not supported; use one of {', '.join(sorted(BACKENDS))}.{meant} Nothing "
            "was connected or written."
        )
    return backend.dialect().own_url(url.set(drivername=backend.driver))


def recognised(url: URL, **limits: Any) -> tuple[Dialect, URL]:
    """The dialect for one of the library's URLs, and the URL as that dialect has it.

    Asks the server only where a URL of one name may lead to another database. Raises
    MissingDriverError.
    """
    backend = BACKENDS[url.get_backend_name()]
    asking = backend.dialect()
    try:
        probe = create_engine(url, **asking.connect_options(**limits))
    except ModuleNotFoundError as error:
        raise MissingDriverError(
            f"the driver {error.name} is not installed; run: pip install "
            f"'stickybus[{backend.extra}]'",
            name=error.name,
        ) from error
    try:
        found = BACKENDS[asking.recognise(probe)]
    finally:
        probe.dispose()
    return found.dialect(), url.set(drivername=found.driver)


def doctor_of(backend: str) -> Doctor:
    """The questions to a database of this kind: the name of a dialect, or of a URL's backend."""
    return BACKENDS[backend].doctor()


def raw_driver_of(backend: str) -> RawDriver:
    """The questions about callers' connections to a kind of database.

    It may be one that Stickybus does not run on.
    """
    return BACKENDS[backend].dialect.raw if backend in BACKENDS else RawDriver()


def raw_drivers() -> set[str]:
    """The modules of the drivers whose own connections callers may pass."""
    return {backend.dialect.raw.module for backend in BACKENDS.values()}
