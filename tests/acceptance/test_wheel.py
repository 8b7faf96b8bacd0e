"""The built wheel without extras, in an empty environment outside the checkout."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from devtools.servers import NO_CERTIFICATES

_CHECKOUT = Path(__file__).parents[2]
# Installation may have to download the base packages.
pytestmark = pytest.mark.timeout(300)

Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a program of the environment, in an empty folder, and return its standard output."""
    wheels, environment = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("environment")
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    _check([*pip, "wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={wheels}", _CHECKOUT])
    (wheel,) = wheels.glob("stickybus-*.whl")
    _check([sys.executable, "-m", "venv", "--without-pip", environment])
    install = [*pip, "--python", environment / "bin" / "python", "install"]
    trusting = {key: value for key, value in os.environ.items() if key not in NO_CERTIFICATES}
    locked = ["--require-hashes", "-r", str(_CHECKOUT / "requirements-base.lock")]
    _check([*install, *locked], env=trusting)
    _check([*install, "--no-deps", wheel])
    empty = tmp_path_factory.mktemp("empty")

    def run(program: str, *arguments: str, **variables: str) -> str:
        path = {"PATH": f"{environment / 'bin'}{os.pathsep}{os.defpath}", "HOME": str(empty)}
        return _check([environment / "bin" / program, *arguments], cwd=empty, env=path | variables)

    return run


def test_importing_stickybus_needs_no_driver_and_no_spark(run: Run) -> None:
    found = run(
        "python",
        "-c",
        "import importlib.util, stickybus\nfrom stickybus import *\nprint([name for name in "
        "('psycopg', 'pymysql', 'pyspark') if "
        "importlib.util.find_spec(name)])\nprint(stickybus.__file__)",
    )
    drivers, location = found.splitlines()
    assert drivers == "[]"
    assert not Path(location).is_relative_to(_CHECKOUT)


def test_the_wheel_holds_neither_tests_nor_tools_of_development(run: Run) -> None:
    found = run(
        "python",
        "-c",
        "import importlib.util\nprint([name for name in ('benchmarks', 'devtools', 'tests') if "
        "importlib.util.find_spec(name)])",
    )
    assert found.strip() == "[]"


def test_schema_create_finds_its_migrations_in_the_wheel(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "wheel.db"
    run("stickybus", "schema", "create", STICKYBUS_URL=f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        tables = {
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
    assert {"bus_events", "bus_events_history", "notifications", "notifications_history"} <= tables


def test_a_spark_session_of_the_base_packages_says_what_to_install(run: Run) -> None:
    found = run(
        "python",
        "-c",
        "from pathlib import Path\n"
        "import history_pipeline\n"
        "from history_pipeline.errors import SparkUnavailableError\n"
        "folder = Path(history_pipeline.__file__).parent\n"
        "for file in ('conf/log4j2.properties', 'reports/templates/report.html.j2'):\n"
        "    print((folder / file).exists())\n"
        "try:\n"
        "    history_pipeline.open_session()\n"
        "except SparkUnavailableError as error:\n"
        "    print(error)",
    )
    assert found.splitlines() == [
        "True",
        "True",
        (
            "the package pyspark is not installed. Nothing was started. "
            "Install the extra: pip install 'stickybus[spark]'."
        ),
    ]


def test_the_demo_tells_its_options(run: Run) -> None:
    assert "Usage" in run("stickybus", "demo", "--help")


def test_the_demo_runs_from_the_wheel(run: Run) -> None:
    assert run("stickybus", "demo")


def _check(
    command: Sequence[str | Path], *, cwd: Path | None = None, env: dict[str, str] | None = None
) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
