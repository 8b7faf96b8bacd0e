"""Contract and acceptance tests reach into no private part of the library.

Public turns, such as claim, finish, beat and reap, are what they drive. Nor does a module take
anything from a test module: what several share stands in a module of its own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("sql", "queue_core", "bus", "notifications", "work_queue", "stickybus")
FOLDERS = ("tests/contract", "tests/acceptance")

ALLOWED = {
    "tests/contract/test_claims_with_stoppers.py": "claims between two steps of a claim",
    "tests/contract/harness.py": "the one way to the engine behind a face",
    "tests/contract/work_queue/backends.py": "the one way to the backend behind a work queue",
    "tests/contract/work_queue/planted_in_docs.py": "a planted bug replaces any part of the code",
    "tests/contract/work_queue/planted_in_tasks.py": "a planted bug replaces any part of the code",
    "tests/contract/interrupted/test_kept_connections.py": "names functions that are interrupted",
    "tests/contract/interrupted/test_posts.py": "names functions that are interrupted",
    "tests/contract/interrupted/test_turns.py": "names functions that are interrupted",
    "tests/contract/sleepers/idle.py": "asks when a node looks next",
    "tests/contract/sleepers/test_durations.py": "shortens sleeps, and counts their ends",
    "tests/contract/sleepers/test_failures.py": "lets the server refuse, and shortens waits",
    "tests/contract/sleepers/test_sender.py": "loses sessions that no call gives out",
}
"""Modules that name private parts, each with the reason."""


OF_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
"""Public in spite of their names."""


def is_private(name: str) -> bool:
    return re.match(r"_[a-z]", name) is not None and name not in OF_NAMED_TUPLES


@cache
def private_names() -> frozenset[str]:
    """The names of all private attributes, functions and variables of our packages."""
    found = set[str]()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                match node:
                    case (
                        ast.FunctionDef(name=name)
                        | ast.AsyncFunctionDef(name=name)
                        | ast.Attribute(attr=name, value=ast.Name(id="self"), ctx=ast.Store())
                        | ast.Name(id=name, ctx=ast.Store())
                    ):
                        found.add(name)
    return frozenset(filter(is_private, found))


def reached(tree: ast.AST) -> Iterator[str]:
    """Each place in a module that names a private part of something else."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name, value=owner) if not _is_own(owner):
                pass
            case ast.Subscript(value=ast.Call(func=ast.Name("vars")), slice=ast.Constant(name)):
                pass
            case ast.Call(
                func=ast.Attribute(attr="setattr") | ast.Name(id="setattr" | "getattr"),
                args=[_, ast.Constant(str(name)), *_],
            ):
                pass
            case ast.ImportFrom(module=str(module), names=names) if _is_ours(module):
                yield from (
                    f"line {node.lineno}: {one.name}" for one in names if is_private(one.name)
                )
                continue
            case _:
                continue
        if name in private_names():
            yield f"line {node.lineno}: {name}"


def _is_own(owner: ast.AST) -> bool:
    match owner:
        case ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super")):
            return True
    return False


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in PACKAGES


def modules() -> list[str]:
    found = (path.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(map(str, found))


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_test_reaches_into_a_private_part(folder: str) -> None:
    found = {
        module: places
        for module in modules()
        if module.startswith(folder) and module not in ALLOWED
        if (places := list(reached(ast.parse((ROOT / module).read_text("utf-8")))))
    }
    assert found == {}


@pytest.mark.parametrize("module", ALLOWED)
def test_no_exception_outlives_its_reason(module: str) -> None:
    assert list(reached(ast.parse((ROOT / module).read_text("utf-8"))))


@pytest.mark.parametrize(
    "line",
    [
        "bus._engine.store",
        "claim = Claimer._claim",
        "vars(bus)['_changed'] = lock",
        "monkeypatch.setattr(bus, '_changed', lock)",
        "getattr(bus, '_engine')",
        "from queue_core.running.handler_pool import _has_head_start",
    ],
)
def test_each_way_of_reaching_is_found(line: str) -> None:
    assert list(reached(ast.parse(line)))


@pytest.mark.parametrize("line", ["self._engine = 1", "row._asdict()", "os._exit(0)"])
def test_what_is_ones_own_or_anothers_is_not(line: str) -> None:
    assert not list(reached(ast.parse(line)))


def imported_tests(tree: ast.AST) -> Iterator[str]:
    """Each test module that a module imports, or imports something of."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(names=names):
                taken = [f"{node.module or ''}.{one.name}" for one in names]
            case ast.Import(names=names):
                taken = [one.name for one in names]
            case _:
                continue
        yield from (name for name in taken if re.search(r"(^|\.)test_", name))


def test_no_module_imports_a_test_module() -> None:
    found = {
        str(path.relative_to(ROOT)): names
        for path in (ROOT / "tests").rglob("*.py")
        if (names := list(imported_tests(ast.parse(path.read_text("utf-8")))))
    }
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "from tests.contract.test_order import post",
        "from tests.contract import conftest, test_order",
        "from .test_order import post",
        "import tests.contract.test_order as order",
    ],
)
def test_each_import_of_a_test_module_is_found(line: str) -> None:
    assert list(imported_tests(ast.parse(line)))
