"""The answers of type checkers to users' calls, against the installed wheel.

Right ones pass, each wrong one is found.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import pytest

_CHECKOUT, _HERE = Path(__file__).parents[2], Path(__file__).parent
_MARK = re.compile(r"# error: (\S+) (\S+)$")
LEAST_WRONG = 30
# A checker reads SQLAlchemy anew for each run.
pytestmark = pytest.mark.timeout(600)

Found = dict[int, set[str]]
"""Rules that were broken, by line."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder, with an environment that has the wheel, and the dependencies of this one."""
    folder = tmp_path_factory.mktemp("project")
    wheels, environment = folder / "wheels", folder / "environment"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    _run(
        [
            *pip,
            "wheel",
            "--no-deps",
            "--no-build-isolation",
            f"--wheel-dir={wheels}",
            str(_CHECKOUT),
        ]
    )
    (wheel,) = wheels.glob("stickybus-*.whl")
    _run([sys.executable, "-m", "venv", "--without-pip", str(environment)])
    python = environment / "bin" / "python"
    _run([*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)])
    (site,) = environment.glob("lib/python*/site-packages")
    # Only the folder: what it names itself, such as this checkout, stays out.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    for name in ("right.py", "wrong.py"):
        shutil.copy(_HERE / name, folder)
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    place = _run([str(python), "-c", "import bus; print(bus.__file__)"], folder)
    assert Path(place.strip()).is_relative_to(site)
    return folder


def _mypy(project: Path, name: str) -> Found:
    python = project / "environment" / "bin" / "python"
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--output=json",
        f"--python-executable={python}",
    ]
    answer = _run([*command, f"--cache-dir={project / 'cache'}", name], project, codes=(0, 1))
    reports = [json.loads(line) for line in answer.splitlines() if line]
    errors = [
        (report["line"], report["code"]) for report in reports if report["severity"] == "error"
    ]
    return _by_line(errors)


def _pyright(project: Path, name: str) -> Found:
    python = project / "environment" / "bin" / "python"
    command = [sys.executable, "-m", "pyright", "--outputjson", f"--pythonpath={python}", name]
    answer = json.loads(_run(command, project, codes=(0, 1)))
    assert answer["summary"]["filesAnalyzed"] == 1
    reports = answer["generalDiagnostics"]
    return _by_line(
        (report["range"]["start"]["line"] + 1, report.get("rule", "")) for report in reports
    )


Checker = Callable[[Path, str], Found]
_CHECKERS = pytest.mark.parametrize(
    ("checker", "place"), [(_mypy, 1), (_pyright, 2)], ids=["mypy", "pyright"]
)


@_CHECKERS
def test_right_calls_have_no_error(project: Path, checker: Checker, place: int) -> None:
    assert checker(project, "right.py") == {}


@_CHECKERS
def test_every_wrong_call_is_found_and_nothing_else(
    project: Path, checker: Checker, place: int
) -> None:
    lines = enumerate((_HERE / "wrong.py").read_text("utf-8").splitlines(), start=1)
    expected = {
        number: set(mark[place].split(","))
        for number, line in lines
        if (mark := _MARK.search(line))
    }
    assert len(expected) >= LEAST_WRONG
    found = checker(project, "wrong.py")
    assert found.keys() == expected.keys()
    assert {number: rules for number, rules in found.items() if not rules <= expected[number]} == {}


def _by_line(errors: Iterable[tuple[int, str]]) -> Found:
    found: Found = {}
    for line, rule in errors:
        found.setdefault(line, set()).add(rule)
    return found


def _run(command: Sequence[str], cwd: Path | None = None, *, codes: Collection[int] = (0,)) -> str:
    # A path of ours would come before the wheel.
    env = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "MYPYPATH"}}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in codes, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
