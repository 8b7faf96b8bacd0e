"""The first session: a line names what is missing, before anything starts.

A session is quiet.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from history_pipeline.errors import PipelineError, SparkUnavailableError
from history_pipeline.java import OLDEST
from queue_core.errors import StickybusError
from sql import schema
from tests.pipeline.conftest import besides_java

ROOT = Path(__file__).parents[2]
STICKYBUS = Path(sys.executable).parent / "stickybus"
_LEFT_OUT = (
    "JAVA_HOME",
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "PYSPARK_PYTHON",
    "SPARK_LOCAL_IP",
    "PYTHONPATH",
)
OPENING = "from history_pipeline import open_session; open_session()"


def run(*command: str | Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, without this machine's settings for Java and Spark."""
    kept = {key: value for key, value in os.environ.items() if key not in _LEFT_OUT}
    return subprocess.run(
        command,
        cwd=folder,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.fixture
def database(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'events.db'}"
    schema.create(url)
    return url


def archiving(database: str, folder: Path, **environment: str) -> str:
    """The one line in which the command line says what is missing; nothing was written."""
    target = folder / "archive"
    ended = run(
        *(STICKYBUS, "history", "archive", "--url", database, "--to", str(target)),
        folder=folder,
        **{"COLUMNS": "500", **environment},
    )
    assert ended.returncode != 0
    assert ended.stdout == ""
    assert not target.exists()
    (line,) = ended.stderr.splitlines()
    return line


def java(folder: Path, script: str) -> Path:
    """A folder in which `bin/java` is a shell script."""
    program = folder / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return program.parent.parent


def test_a_missing_java_is_told_in_a_line(database: str, tmp_path: Path) -> None:
    line = archiving(database, tmp_path, PATH=str(tmp_path))
    assert line.startswith(
        "stickybus: there is no java on PATH, and JAVA_HOME is not set. Nothing was started."
    )
    assert f"Install Java {OLDEST} or later" in line


def test_a_wrong_java_home_is_told_in_a_line_though_a_java_is_on_the_path(
    database: str, tmp_path: Path
) -> None:
    line = archiving(database, tmp_path, JAVA_HOME=str(tmp_path / "nowhere"))
    assert f"JAVA_HOME={tmp_path}/nowhere holds no Java" in line
    assert "unset it to use the one on PATH" in line


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("""echo 'openjdk version "1.8.0_392"' >&2""", "is Java 8, which is too old"),
        ("""echo 'openjdk version "11.0.20" 2023-07-18' >&2""", "is Java 11, which is too old"),
        ("echo hello", "does not tell its version"),
        ("exit 127", "does not run"),
    ],
)
def test_a_java_that_does_not_fit_is_told_in_a_line(
    database: str, tmp_path: Path, script: str, reason: str
) -> None:
    line = archiving(database, tmp_path, JAVA_HOME=str(java(tmp_path, script)))
    assert str(tmp_path / "jdk" / "bin" / "java") in line
    assert reason in line


def test_java_is_found_on_the_path_if_java_home_is_empty(database: str, tmp_path: Path) -> None:
    old = java(tmp_path, """echo 'openjdk version "9"' >&2""")
    line = archiving(database, tmp_path, JAVA_HOME="", PATH=f"{old / 'bin'}:{os.environ['PATH']}")
    assert "is Java 9, which is too old" in line


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_a_missing_extra_is_told_in_a_line_and_the_rest_works(
    database: str, tmp_path: Path, missing: str
) -> None:
    # As an environment without the package: all others are linked, and -S keeps this one's own out.
    packages = tmp_path / "packages"
    packages.mkdir()
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if path.name.partition("-")[0] != missing:
            (packages / path.name).symlink_to(path)
    environment = {"PYTHONPATH": f"{packages}:{ROOT}", "COLUMNS": "500"}

    reason = (
        f"the package {missing} is not installed. Nothing was started. "
        "Install the extra: pip install 'stickybus[spark]'."
    )
    opened = run(sys.executable, "-S", "-c", OPENING, folder=tmp_path, **environment)
    assert opened.returncode == 1
    assert (
        opened.stderr.splitlines()[-1] == f"history_pipeline.errors.SparkUnavailableError: {reason}"
    )
    command = (
        sys.executable,
        "-S",
        "-c",
        "import sys; from stickybus.cli import main; sys.exit(main())",
    )
    target = str(tmp_path / "archive")
    archived = run(
        *(*command, "history", "archive", "--url", database, "--to", target),
        folder=tmp_path,
        **environment,
    )
    assert archived.returncode == 1
    assert archived.stderr.splitlines() == [f"stickybus: {reason}"]
    status = run(*command, "status", "--url", database, folder=tmp_path, **environment)
    assert (status.returncode, status.stderr) == (0, "")


def test_the_errors_are_of_this_librarys_family() -> None:
    assert issubclass(SparkUnavailableError, PipelineError)
    assert issubclass(PipelineError, StickybusError)


_LOOKING = """
import json, os, sys
from history_pipeline import open_session

session = open_session("looking", master="local[1]", settings={"spark.sql.shuffle.partitions": "3"})
assert open_session() is session
context = session.sparkContext
one = context.parallelize([1], 1)
worker = one.map(lambda _: (sys.executable, sys.modules.keys() & {"pandas"})).first()
one.map(lambda _: __import__("history_pipeline.source.data_source") and 1).first()
rows = session.read.format("stickybus").option("url", sys.argv[1]).load().count()
kept = ["spark.ui.enabled", "spark.sql.session.timeZone", "spark.sql.shuffle.partitions",
        "spark.sql.parquet.compression.codec", "spark.ui.showConsoleProgress",
        "spark.driver.host", "spark.app.name"]
print(json.dumps({"worker": worker[0], "web": context.uiWebUrl, "rows": rows, "files": os.listdir(),
                  **{key: session.conf.get(key) for key in kept}}))
session.stop()
"""


_FINDING = """
import sys
from pyspark.sql import SparkSession

session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(session.read.format("stickybus").option("url", sys.argv[1]).load().count())
session.stop()
"""


def test_a_session_opened_elsewhere_finds_the_format_by_itself(
    database: str, tmp_path: Path
) -> None:
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYTHONPATH"] = str(ROOT)
    ended = run(sys.executable, "-c", _FINDING, database, folder=tmp_path, **environment)
    assert (ended.returncode, ended.stdout) == (0, "0\n"), ended.stderr


def test_a_session_is_quiet_local_and_leaves_nothing_behind(database: str, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    ended = run(sys.executable, "-c", _LOOKING, database, folder=folder)
    assert ended.returncode == 0, ended.stderr
    assert besides_java(ended.stderr) == []
    found = json.loads(ended.stdout)
    # Spark asks for the name of the loopback address.
    assert found.pop("spark.driver.host") in {"127.0.0.1", "localhost"}
    assert found == {
        "worker": sys.executable,
        "web": None,
        "rows": 0,
        "files": [],
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.ui.showConsoleProgress": "false",
        "spark.app.name": "looking",
    }
