"""Databases for the tests: one of its own for each test, cloned from a migrated template.

A test that asks for `database_url` or `empty_database_url` runs once on each database; `-k sqlite` or
`-m sqlite` chooses. A skipped or expectedly failing test fails the run: what is not tested is not green.
"""

from __future__ import annotations

import os
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Protocol

import pytest
from sqlalchemy import URL, Connection, Engine, create_engine, make_url, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from devtools.programs import OPTIONAL, URL_VARIABLES, is_done_without
from devtools.server import DatabaseServer
from devtools.servers import database_servers
from sql import schema
from sql.capabilities import Capabilities
from sql.registry import BACKENDS
from tests.requirements import DATABASES, capabilities_of

_EACH_SERVER: Final = [
    pytest.param(name, marks=getattr(pytest.mark, name)) for name in URL_VARIABLES
]
_EACH_DATABASE: Final = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in DATABASES]


_WITHOUT_SESSION = ("test_example", "test_session", "test_spark_submit")
"""Tests of the pipeline that start processes of their own, or none."""


class _SparkTogether(LoadScopeScheduling):  # type: ignore[misc]
    """Gives the tests that share a Spark session to one process, first, and each other one to whoever is free."""

    def _split_scope(self, nodeid: str) -> str:
        folder, _, name = nodeid.rpartition("/")
        return (
            "spark"
            if folder == "tests/pipeline" and not name.startswith(_WITHOUT_SESSION)
            else nodeid
        )


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """How `pytest -n` spreads the tests.

    Groups by a mark (`--dist loadgroup`) don't form with pytest 9.2.
    """
    return _SparkTogether(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests on the server of `OPTIONAL` out where there is none."""
    if os.environ.get(URL_VARIABLES[OPTIONAL]) or not is_done_without(OPTIONAL):
        return
    without = [item for item in items if item.get_closest_marker(OPTIONAL)]
    items[:] = [item for item in items if item not in set(without)]
    config.hook.pytest_deselected(items=without)


class NewDatabase(Protocol):
    """Makes a database with the schema, or empty (on SQLite: a file not there yet); `name` is the SQLite file's."""

    def __call__(self, name: str, *, migrated: bool = True) -> URL: ...


class _Cloner(ABC):
    """Makes and drops databases on one server; the template is migrated when first needed."""

    def __init__(self, server_url: URL) -> None:
        self._server_url = server_url
        # Tests open and close many databases: a kept connection would be one that DROP DATABASE
        # must kill.
        self._engine = create_engine(server_url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
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


class _PostgreSQLCloner(_Cloner):
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
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))
        return name

    def _drop(self, connection: Connection, name: str) -> None:
        connection.execute(text(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))


class _MySQLCloner(_Cloner):
    """MariaDB and MySQL have no templates: the template's DDL is read once and run for each clone."""

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
        return name

    def _read(self, connection: Connection, template: str) -> list[str]:
        connection.exec_driver_sql(f"USE {template}")
        tables = list(connection.exec_driver_sql("SHOW TABLES").scalars())
        ddl = [
            connection.exec_driver_sql(f"SHOW CREATE TABLE `{table}`").one()[1] for table in tables
        ]
        # In the order of names, a table may precede the one that it refers to.
        return ["SET foreign_key_checks = 0"] + [
            statement
            for table, create in zip(tables, ddl, strict=True)
            for statement in (
                str(create),
                f"INSERT INTO `{table}` SELECT * FROM {template}.`{table}`",
            )
        ]

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


class _MariaDBCloner(_MySQLCloner):
    sessions = "information_schema.processlist"


_CLONERS: Final[dict[str, type[_Cloner]]] = {
    "postgresql": _PostgreSQLCloner,
    "mariadb": _MariaDBCloner,
    "mysql": _MySQLCloner,
}


class _SQLiteFiles:
    """Databases as files below pytest's temporary folders, which pytest removes."""

    def __init__(self, folder: Path) -> None:
        self._template = folder / "template.db"

    def migrated(self, path: Path) -> URL:
        if not self._template.exists():
            schema.create(_sqlite_url(self._template))
        shutil.copyfile(self._template, path)
        return _sqlite_url(path)


def _sqlite_url(path: Path) -> URL:
    return URL.create("sqlite", database=str(path))


@pytest.fixture(scope="session")
def _cloners() -> Iterator[dict[str, _Cloner]]:
    cloners = {
        name: _CLONERS[name](_server_url(name, os.environ[variable]))
        for name, variable in URL_VARIABLES.items()
        if os.environ.get(variable)
    }
    yield cloners
    for cloner in cloners.values():
        cloner.close()


@pytest.fixture(scope="session")
def _sqlite_files(tmp_path_factory: pytest.TempPathFactory) -> _SQLiteFiles:
    return _SQLiteFiles(tmp_path_factory.mktemp("sqlite"))


def _server_url(name: str, given: str) -> URL:
    """The URL of a server to test on, as users write it, with the driver that our own connections use."""
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


def _cloner(cloners: dict[str, _Cloner], name: str) -> _Cloner:
    if name not in cloners:
        pytest.fail(
            f"{URL_VARIABLES[name]} is not set: run `make test`, or `python -m devtools.servers -- pytest`",
            pytrace=False,
        )
    return cloners[name]


@pytest.fixture(params=_EACH_DATABASE)
def database_name(request: pytest.FixtureRequest) -> str:
    """Name of the database that the test runs on: sqlite, postgresql, mariadb or mysql."""
    return str(request.param)


@pytest.fixture
def capabilities(database_name: str) -> Capabilities:
    """The facts about the test's database, for what differs inside of a test."""
    return capabilities_of(database_name)


@pytest.fixture
def new_database(
    database_name: str, _cloners: dict[str, _Cloner], _sqlite_files: _SQLiteFiles, tmp_path: Path
) -> Iterator[NewDatabase]:
    """Makes fresh databases, dropped after the test."""
    with ExitStack() as made:

        def make(name: str, *, migrated: bool = True) -> URL:
            if database_name == "sqlite":
                path = tmp_path / f"{name}.db"
                return _sqlite_files.migrated(path) if migrated else _sqlite_url(path)
            cloner = _cloner(_cloners, database_name)
            url = cloner.migrated() if migrated else cloner.empty()
            made.callback(cloner.drop, str(url.database))
            return url

        yield make


@pytest.fixture
def database_url(new_database: NewDatabase) -> URL:
    """URL of a fresh database with the schema, dropped after the test."""
    return new_database("stickybus")


@pytest.fixture
def empty_database_url(new_database: NewDatabase) -> URL:
    """URL of a fresh database without any table (on SQLite: of a file not there yet)."""
    return new_database("empty", migrated=False)


@pytest.fixture
def engine(database_url: URL) -> Iterator[Engine]:
    """An application's engine on the test's database, with the defaults of SQLAlchemy."""
    engine = create_engine(database_url)
    yield engine
    engine.dispose()


class _OwnServers:
    """Servers of this run alone, each started when first asked for."""

    def __init__(self, running: ExitStack) -> None:
        self._running = running
        self._servers: dict[str, DatabaseServer] = {}

    def server(self, name: str) -> DatabaseServer:
        if name not in self._servers:
            servers = self._running.enter_context(database_servers(which=[name]))
            self._servers[name] = servers.server(name)
        return self._servers[name]


@pytest.fixture(scope="session")
def _own_servers() -> Iterator[_OwnServers]:
    with ExitStack() as running:
        yield _OwnServers(running)


@pytest.fixture(params=_EACH_SERVER)
def own_server(
    request: pytest.FixtureRequest, _own_servers: _OwnServers
) -> Iterator[DatabaseServer]:
    """A server that the test may stop and restart; other tests' databases are elsewhere."""
    server = _own_servers.server(str(request.param))
    yield server
    server.start()


@pytest.fixture
def own_server_url(own_server: DatabaseServer) -> Iterator[URL]:
    """URL of a fresh database with the schema on `own_server`."""
    cloner = _CLONERS[own_server.name](make_url(own_server.url))
    yield cloner.migrated()
    own_server.start()
    cloner.close()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in which a test was skipped or expected to fail."""
    if session.exitstatus == pytest.ExitCode.OK and _not_run(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why a run without failures is not green."""
    count = _not_run(terminalreporter.config)
    if count:
        terminalreporter.write_line(
            f"{count} skipped or expectedly failing: the run fails", red=True
        )


def _not_run(config: pytest.Config) -> int:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return (
        sum(len(reporter.stats.get(kind, ())) for kind in ("skipped", "xfailed")) if reporter else 0
    )
