"""What an import loads: a name's module when the name is read, and nothing heavy before."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import history_pipeline
import stickybus
from stickybus.own_rooms import ROOMS

pytestmark = pytest.mark.slow  # each test starts a process

HEAVY = {
    *(
        "alembic",
        "apscheduler",
        "asyncio",
        "grpc",
        "httpx",
        "msgspec",
        "numpy",
        "prometheus_client",
    ),
    *("pyarrow", "pydantic", "pyspark", "rich", "sqlalchemy", "starlette", "structlog", "tenacity"),
    *("typer", "uvicorn"),
}
FROZEN = Path(__file__).parents[1] / "pipeline" / "frozen" / "format-2"


def loaded_by(program: str) -> set[str]:
    """The modules of a fresh process after a program, which may print what it likes."""
    ended = subprocess.run(
        (sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules, sep=chr(10))"),
        capture_output=True,
        text=True,
        check=True,
    )
    return set(ended.stdout.splitlines())


@pytest.mark.parametrize("package", ["stickybus", "history_pipeline"])
def test_a_package_loads_nothing_heavy(package: str) -> None:
    assert loaded_by(f"import {package}") & HEAVY == set()


def test_a_name_loads_its_own_room_only() -> None:
    loaded = loaded_by("from stickybus import PersistentBus")
    assert "bus.persistent" in loaded
    others = {"notifications.service", "work_queue.work_queue", "alembic", "apscheduler"}
    assert loaded & others == set()


def test_the_command_line_loads_no_part_of_the_engine() -> None:
    """Each command loads what it needs: `stickybus --help` needs none of it."""
    loaded = loaded_by("import stickybus.cli")
    shown = {"msgspec", "rich", "typer"}
    assert loaded & HEAVY <= shown
    assert loaded & {"queue_core.engine", "sql.database", "work_queue.work_queue"} == set()


def test_versions_are_shown_without_what_they_are_of() -> None:
    loaded = loaded_by('from stickybus.cli import main\nassert main(["--version"]) == 0')
    assert loaded & {"sqlalchemy", "psycopg", "pymysql"} == set()


@pytest.mark.parametrize(
    "arguments", [["entries", "show", "21"], ["history", "list", "--key1", "7"]], ids=" ".join
)
def test_a_lookup_in_an_archive_loads_nothing_that_opens_databases(arguments: list[str]) -> None:
    command = [*arguments, "--archive", str(FROZEN)]
    loaded = loaded_by(f"from stickybus.cli import main\nassert main({command}) == 0")
    assert "pyarrow" in loaded
    parts = {"queue_core.engine", "queue_core.inspector", "sql.database", "sql.registry"}
    others = {"alembic", "prometheus_client", "pyspark", "structlog", "tenacity"}
    assert loaded & (parts | others) == set()


def test_a_schema_that_is_there_loads_no_migrations(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'queue.db'}"
    stickybus.create_schema(url)
    loaded = loaded_by(f"from stickybus import PersistentBus\nPersistentBus({url!r}).close()")
    assert "alembic" not in loaded


def test_a_bus_that_is_made_loads_nothing_more() -> None:
    """An import takes long and may wait for another thread's: no transaction has one inside."""
    program = """
import sys, threading
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from stickybus import PersistentBus

@dataclass
class Placed:
    number: int

with TemporaryDirectory() as folder:
    handled = threading.Event()
    bus = PersistentBus(f"sqlite:///{Path(folder) / 'queue.db'}")
    before = set(sys.modules)

    def handle(event: Placed) -> None:
        handled.set()

    bus.subscribe(Placed, handle)
    with bus:
        bus.post(Placed(1))
        assert handled.wait(60)
    late = {name.partition(".")[0] for name in sys.modules.keys() - before}
print("LATE", *late)
"""
    [late] = [line for line in loaded_by(program) if line.startswith("LATE")]
    ours = {"bus", "notifications", "queue_core", "sql", "stickybus", "work_queue"}
    assert set(late.split()) & (ours | HEAVY) == set()


@pytest.mark.parametrize("package", [stickybus, history_pipeline], ids=lambda one: one.__name__)
def test_type_checkers_and_python_find_the_same_names(package: ModuleType) -> None:
    tree = ast.parse(Path(str(package.__file__)).read_text("utf-8"))
    checked = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(checked) == sorted(package.__all__) == dir(package)
    for name, module in checked.items():
        assert module is not None
        assert getattr(package, name) is getattr(importlib.import_module(module), name)


def test_a_name_that_is_not_there_is_told_with_one_that_is() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'Persistent'$"):
        stickybus.Persistent  # type: ignore[attr-defined]  # noqa: B018 -- reading it is the test
    ended = subprocess.run(
        (sys.executable, "-c", "import stickybus; stickybus.PersistentBuss"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Did you mean: 'PersistentBus'?" in ended.stderr


@pytest.mark.parametrize("room", ROOMS)
def test_a_module_that_hides_a_room_is_named(room: str, tmp_path: Path) -> None:
    foreign = tmp_path / f"{room}.py"
    foreign.write_text("raise SystemExit('it is never imported')\n", "utf-8")
    checkout = Path(__file__).parents[2]
    ended = subprocess.run(
        (sys.executable, "-c", "import stickybus"),
        cwd=tmp_path,
        env={"PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "queue_core.errors.ShadowedModuleError: " in ended.stderr
    assert f"{room!r} at {foreign}" in ended.stderr


def test_the_package_is_run_as_the_command_line() -> None:
    ended = subprocess.run(
        (sys.executable, "-m", "stickybus", "tasks", "--nonsense"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert "No such option: --nonsense" in ended.stderr


def test_all_names_can_be_imported_at_once() -> None:
    found: dict[str, object] = {}
    exec("from stickybus import *", found)  # noqa: S102 -- the statement is the test
    assert set(stickybus.__all__) <= found.keys()
