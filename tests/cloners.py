"""Makes databases for tests, as copies of a migrated template."""

from __future__ import annotations

import secrets
import shutil
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import URL, Connection, create_engine, make_url, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from devtools.programs import URL_VARIABLES
from sql import schema
from sql.registry import BACKENDS


class Cloner(ABC):
    """Makes and drops databases on one server; the template is migrated when first needed."""

    def __init__(self, server_url: URL) -> None:
        self._server_url = server_url
        # A session costs a server several milliseconds: one is kept, unless a test has ended it.
        self._engine = create_engine(server_url, isolation_level="AUTOCOMMIT", pool_pre_ping=True)
        self._template: str | None = None
        self._made: list[str] = []

    def empty(self) -> URL:
        """A database without tables."""
        with self._engine.connect() as connection:
            return self._url(self._create_empty(connection))

    def migrated(self) -> URL:
        """A database with the schema of `sql.schema.create`."""
        with self._engine.connect() as connection:
            if self._template is None:
                template = self._create_empty(connection)
                schema.create(self._url(template))
                self._template = template
            return self._url(self._clone(connection, self._template))

    def drop(self, name: str) -> None:
        """Drop a database, whoever still uses it."""
        self._made.remove(name)
        with self._engine.connect() as connection:
            self._drop(connection, name)

    def close(self) -> None:
        """Drop what is left: the template, and databases of interrupted tests."""
        for name in list(self._made):
            self.drop(name)
        self._engine.dispose()

    def _new_name(self) -> str:
        name = f"stickybus_test_{secrets.token_hex(6)}"
        self._made.append(name)
        return name

    def _url(self, name: str) -> URL:
        return self._server_url.set(database=name)

    @abstractmethod
    def _create_empty(self, connection: Connection) -> str: ...

    @abstractmethod
    def _clone(self, connection: Connection, template: str) -> str: ...

    @abstractmethod
    def _drop(self, connection: Connection, name: str) -> None: ...


class PostgreSQLCloner(Cloner):
    def _create_empty(self, connection: Connection) -> str:
        return self._clone(connection, "template0")

    def _clone(self, connection: Connection, template: str) -> str:
        name = self._new_name()
        # A session of the migration may still be leaving, and a template must be unused.
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = :name"
            ),
            {"name": template},
        )
        # Of a small database the files are copied for half of what its pages cost through the log.
        # PostgreSQL 14 knows no other way.
        version = connection.dialect.server_version_info or ()
        strategy = " STRATEGY FILE_COPY" if version >= (15,) else ""
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}{strategy}"))
        return name

    def _drop(self, connection: Connection, name: str) -> None:
        connection.execute(text(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))


class MySQLCloner(Cloner):
    """MariaDB and MySQL lack templates: the template's DDL is read once and run for each clone."""

    # The one in information_schema is an error while a session runs a statement with an emoji in
    # it.
    sessions = "performance_schema.processlist"

    def __init__(self, server_url: URL) -> None:
        super().__init__(server_url)
        self._statements: list[str] = []

    def _create_empty(self, connection: Connection) -> str:
        name = self._new_name()
        connection.execute(text(f"CREATE DATABASE {name}"))
        return name

    def _clone(self, connection: Connection, template: str) -> str:
        # Without parameters the driver leaves a percent sign as it stands.
        connection.execution_options(no_parameters=True)
        self._statements = self._statements or self._read(connection, template)
        name = self._create_empty(connection)
        connection.exec_driver_sql(f"USE {name}")
        for statement in self._statements:
            connection.exec_driver_sql(statement)
        # Tests count the sessions in their databases.
        connection.exec_driver_sql(f"USE {self._server_url.database}")
        return name

    def _read(self, connection: Connection, template: str) -> list[str]:
        connection.exec_driver_sql(f"USE {template}")
        tables = list(connection.exec_driver_sql("SHOW TABLES").scalars())
        ddl = [
            str(connection.exec_driver_sql(f"SHOW CREATE TABLE `{table}`").one()[1])
            for table in tables
        ]
        filled = [
            table
            for table in tables
            if connection.exec_driver_sql(f"SELECT 1 FROM `{table}` LIMIT 1").first()
        ]
        copies = [f"INSERT INTO `{table}` SELECT * FROM {template}.`{table}`" for table in filled]
        # In the order of names, a table may precede the one that it refers to.
        return ["SET foreign_key_checks = 0", *ddl, *copies]

    def _drop(self, connection: Connection, name: str) -> None:
        # A transaction left open would hold the metadata lock that DROP waits for.
        sessions = connection.execute(
            text(f"SELECT id FROM {self.sessions} WHERE db = :name"), {"name": name}
        )
        for session in sessions.scalars():
            # It may have left by itself.
            with suppress(OperationalError):
                connection.exec_driver_sql(f"KILL {int(session)}")
        connection.execute(text(f"DROP DATABASE IF EXISTS {name}"))


class MariaDBCloner(MySQLCloner):
    sessions = "information_schema.processlist"


CLONERS: Final[dict[str, type[Cloner]]] = {
    "postgresql": PostgreSQLCloner,
    "mariadb": MariaDBCloner,
    "mysql": MySQLCloner,
}


class SQLiteFiles:
    """Databases as files below pytest's temporary folders, which pytest removes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._template = folder / "template.db"

    def migrated(self, path: Path) -> URL:
        if not self._template.exists():
            schema.create(sqlite_url(self._template))
        shutil.copyfile(self._template, path)
        return sqlite_url(path)


def sqlite_url(path: Path) -> URL:
    return URL.create("sqlite", database=str(path))


def server_url(name: str, given: str) -> URL:
    """Return the URL of a server to test on, with the driver of the engine's own connections."""
    url = make_url(given)
    url = url.set(drivername=BACKENDS["postgresql" if name == "postgresql" else "mysql"].driver)
    if name in {"mysql", "mariadb"}:
        engine = create_engine(url, poolclass=NullPool)
        with engine.connect():
            if getattr(engine.dialect, "is_mariadb", False) != (name == "mariadb"):
                pytest.fail(
                    f"{URL_VARIABLES[name]} names a server that is not {name}", pytrace=False
                )
    return url
