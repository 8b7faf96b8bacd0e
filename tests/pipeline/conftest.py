"""One Spark session for all tests of the pipeline, and databases with a filled history.

`make test` runs all of them in one of its processes, because a session costs a Java process
(`tests/conftest.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL

from history_pipeline import open_session
from stickybus.cli import main
from tests.pipeline.sample import sample_history, write_rows
from tests.pipeline.tasks import sample_tasks, write_tasks

_HERE = Path(__file__).parent


class Erase(Protocol):
    """Runs a command, and returns what it tells: its output, or its error if it is to fail."""

    def __call__(self, *arguments: str, expect: int = 0) -> str: ...


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder time."""
    for item in items:
        if _HERE in item.path.parents:
            # Spark takes ten seconds to start, and a minute where the machine is busy.
            item.add_marker(pytest.mark.timeout(300))


def besides_java(stderr: str) -> list[str]:
    """The lines, but for what Spark's start script makes Java tell.

    It asks for modules that a newer Java may lack.
    """
    told = ("incubator modules", "not in java.base")
    return [line for line in stderr.splitlines() if not any(one in line for one in told)]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of two threads in which a task that fails is tried once more.

    Plain `local[N]` never does that.
    """
    session = open_session(
        "tests",
        master="local[2,2]",
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            # Of a second, most would go into compiling what runs over ten rows.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        },
    )
    yield session
    session.stop()


@pytest.fixture
def history_url(database_url: URL) -> URL:
    """A database, of each kind in turn, whose `bus_events_history` holds `sample_history()`."""
    write_rows(database_url, sample_history())
    return database_url


@pytest.fixture
def tasks_url(database_url: URL) -> URL:
    """A database, of each kind in turn, whose history of tasks holds `sample_tasks()`."""
    write_tasks(database_url, sample_tasks())
    return database_url


@pytest.fixture
def target(target_path: Path) -> str:
    """A directory for an archive, which does not exist yet."""
    return str(target_path)


@pytest.fixture
def target_path(tmp_path: Path) -> Path:
    """The path of `target`."""
    return tmp_path / "archive"


@pytest.fixture
def erase(database_url: URL, target: str, capsys: pytest.CaptureFixture[str]) -> Erase:
    """The command that erases what is in the archive `target`."""
    url = database_url.render_as_string(hide_password=False)

    def run(*arguments: str, expect: int = 0) -> str:
        assert main(["history", "erase", "--in", target, "--url", url, *arguments]) == expect
        out, err = capsys.readouterr()
        return err if expect else out

    return run
