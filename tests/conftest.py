"""Databases for the tests: each test has its own, cloned from a migrated template.

A test that asks for `database_url` or `empty_database_url` runs once on each database; `-k sqlite`
or `-m sqlite` chooses. A skipped or expectedly failing test fails the run, for it tests nothing.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol

import pytest
from sqlalchemy import URL, Engine, create_engine, make_url
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from devtools.folders import data_folder
from devtools.programs import OPTIONAL, URL_VARIABLES, is_done_without
from devtools.server import DatabaseServer
from devtools.servers import database_servers
from sql.capabilities import Capabilities
from sql.database import Database
from tests import commands, compiled
from tests.cloners import CLONERS, Cloner, SQLiteFiles, server_url, sqlite_url
from tests.requirements import DATABASES, capabilities_of

_EACH_SERVER: Final = [
    pytest.param(name, marks=getattr(pytest.mark, name)) for name in URL_VARIABLES
]
_EACH_DATABASE: Final = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in DATABASES]


_WITHOUT_SESSION = ("test_example", "test_session", "test_spark_submit")
"""Tests of the pipeline that start processes of their own, or none."""
_SERVERS = {
    "tests/contract/doctor/": "a durable server",
    "tests/acceptance/test_database_outage.py": "a server to restart",
    "tests/contract/posting/test_packets.py": "a server to restart",
}
"""Tests that start a server, by the start of their paths: no two processes should start it."""


class _Sharing(LoadScopeScheduling):  # type: ignore[misc]
    """Gives tests that share something costly to one process, and each other test to any process.

    The large groups come first.
    """

    def _split_scope(self, nodeid: str) -> str:
        path, _, name = nodeid.partition("::")
        folder, _, module = path.rpartition("/")
        if folder == "tests/pipeline" and not module.startswith(_WITHOUT_SESSION):
            return "a session of Spark"
        if module == "test_wheel.py":
            return "an environment with the wheel"
        if module == "test_site.py":
            return "the built site"
        for start, server in _SERVERS.items():
            of_name = re.search(rf"[\[-]({'|'.join(URL_VARIABLES)})[\]-]", name)
            if path.startswith(start) and of_name:
                return f"{server}, {of_name[1]}"
        return nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Return the way in which `pytest -n` spreads the tests.

    Groups by a mark (`--dist loadgroup`) don't form with pytest 9.2.
    """
    return _Sharing(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `make test ARGS=--full-size` run what takes minutes."""
    parser.addoption("--full-size", action="store_true", help="run tests marked full_size, too")


def pytest_configure() -> None:
    """Put the tests' files where the servers' data lie: in memory, no commit waits for a disk.

    And let processes start programs while they serve over gRPC, and compile a statement, or read
    the signatures of all commands, once.
    """
    compiled.share()
    commands.share()
    # gRPC's threads would go on in a forked child until it becomes the program that it starts, and
    # end it before. Servers are started so.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    folder = data_folder(durable=False)
    # Some tests run programs that lie there, which containers forbid in memory.
    if folder is not None and not os.statvfs(folder).f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(folder))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests on the server of `OPTIONAL` where there is none, and those of full size.

    The latter run if the command asks for them.
    """
    left_out = set[str]()
    if not os.environ.get(URL_VARIABLES[OPTIONAL]) and is_done_without(OPTIONAL):
        left_out.add(OPTIONAL)
    if not config.getoption("full_size"):
        left_out.add("full_size")
    without = {item for item in items if any(map(item.get_closest_marker, left_out))}
    if without:
        items[:] = [item for item in items if item not in without]
        config.hook.pytest_deselected(items=list(without))


def pytest_collection_finish() -> None:
    """Leave what the collection made, and nothing drops, out of every later search for garbage."""
    gc.collect()
    gc.freeze()


class NewDatabase(Protocol):
    """Makes a database with the schema, or an empty one (on SQLite: a file not there yet).

    `name` is the name of the SQLite file.
    """

    def __call__(self, name: str, *, migrated: bool = True) -> URL: ...


@pytest.fixture(scope="session")
def _cloners() -> Iterator[dict[str, Cloner]]:
    cloners = {
        name: CLONERS[name](server_url(name, os.environ[variable]))
        for name, variable in URL_VARIABLES.items()
        if os.environ.get(variable)
    }
    yield cloners
    for cloner in cloners.values():
        cloner.close()


@pytest.fixture(scope="session")
def sqlite_files(tmp_path_factory: pytest.TempPathFactory) -> SQLiteFiles:
    """Copies of a migrated SQLite file."""
    return SQLiteFiles(tmp_path_factory.mktemp("sqlite"))


def _cloner(cloners: dict[str, Cloner], name: str) -> Cloner:
    if name not in cloners:
        pytest.fail(
            f"{URL_VARIABLES[name]} is not set: run `make test`, or `python -m devtools.servers -- "
            "pytest`",
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
    database_name: str, _cloners: dict[str, Cloner], sqlite_files: SQLiteFiles, tmp_path: Path
) -> Iterator[NewDatabase]:
    """Makes fresh databases, dropped after the test."""
    with ExitStack() as made:

        def make(name: str, *, migrated: bool = True) -> URL:
            if database_name == "sqlite":
                path = tmp_path / f"{name}.db"
                return sqlite_files.migrated(path) if migrated else sqlite_url(path)
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
    """An application's engine on the test's database, with the defaults of SQLAlchemy.

    But on SQLite it waits longer than 5 s for the write lock: a thread that has it may be stopped.
    """
    patience = {"timeout": 20.0} if database_url.get_backend_name() == "sqlite" else {}
    engine = create_engine(database_url, connect_args=patience)
    yield engine
    engine.dispose()


@pytest.fixture
def database(database_url: URL) -> Iterator[Database]:
    """Our connections to the test's database."""
    database = Database(database_url)
    yield database
    database.close()


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
    cloner = CLONERS[own_server.name](make_url(own_server.url))
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
