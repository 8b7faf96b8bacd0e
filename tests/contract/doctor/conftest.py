"""Servers as durable as in production, and their doctor."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import (
    URL,
    Engine,
    create_engine,
)
from sqlalchemy.pool import NullPool

from devtools import servers
from stickybus.cli import main
from tests.cloners import SQLiteFiles
from tests.contract.doctor.answers import Doctor, Told
from tests.contract.doctor.servers import DurableServers, LoggingServer


@pytest.fixture(scope="package")
def durable_servers() -> Iterator[DurableServers]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(servers.SERVERS, "mariadb", LoggingServer)
        running = DurableServers()
        yield running
        running.close()


@pytest.fixture
def database_url(
    database_name: str,
    durable_servers: DurableServers,
    sqlite_files: SQLiteFiles,
    tmp_path: Path,
) -> Iterator[URL]:
    """In place of the suite's: a fresh database on a server that a crash costs nothing."""
    if database_name == "sqlite":
        yield sqlite_files.migrated(tmp_path / "stickybus.db")
        return
    cloner = durable_servers.cloner(database_name)
    url = cloner.migrated()
    yield url
    cloner.drop(url.database)


@pytest.fixture
def engine(database_url: URL) -> Iterator[Engine]:
    """Sessions of another program."""
    engine = create_engine(database_url, poolclass=NullPool)
    yield engine
    engine.dispose()


@pytest.fixture
def run(engine: Engine) -> Callable[..., None]:
    """Runs statements of an administrator, each in a transaction of its own."""

    def run(*statements: str) -> None:
        with engine.connect() as connection:
            autocommit = connection.execution_options(isolation_level="AUTOCOMMIT")
            for statement in statements:
                autocommit.exec_driver_sql(statement)

    return run


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    """The doctor of any database."""

    def ask(url: URL, *options: str) -> Told:
        shown = url.render_as_string(hide_password=False)
        code = main(["doctor", "--json", "--url", shown, *options])
        written = capsys.readouterr()
        assert written.out, written.err
        return Told(code, json.loads(written.out)["findings"])

    return ask


@pytest.fixture
def doctor(database_url: URL, ask: Callable[..., Told]) -> Doctor:
    """The doctor of the test's database."""
    return partial(ask, database_url)
