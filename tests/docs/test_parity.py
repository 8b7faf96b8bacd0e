"""docs/parity.md names a test and a page for every behaviour of the yardstick, and they exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARITY = ROOT / "docs" / "parity.md"
YARDSTICK = {"K": 26, "Y": 20, "C": 8, "E": 23}
"""Of each peer: the letter of its behaviours, and their number."""


def rows() -> list[list[str]]:
    lines = PARITY.read_text("utf-8").splitlines()
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("| ")
    ]
    return [row for row in cells if row[0] != "row"]


@cache
def names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


@pytest.mark.parametrize(("letter", "last"), YARDSTICK.items())
def test_every_behaviour_of_the_yardstick_has_a_row(letter: str, last: int) -> None:
    listed = {row[0].split()[0] for row in rows() if re.match(rf"{letter}\d", row[0])}
    assert listed == {f"{letter}{number}" for number in range(1, last + 1)}


def test_every_test_that_is_named_exists() -> None:
    named = [link for row in rows() for link in re.findall(r"`(tests/[^`]+)`", row[2])]
    missing = [
        link
        for link in named
        if not (ROOT / link.partition("::")[0]).exists()
        or link.partition("::")[2] not in names_in(ROOT / link.partition("::")[0])
    ]
    assert not missing


def test_every_row_names_a_test_and_a_page_that_exists() -> None:
    for row in rows():
        assert re.search(r"`tests/[^`]+::test_", row[2]), row[0]
        pages = re.findall(r"\]\(([^)#]+)", row[3])
        assert pages, row[0]
        assert all((PARITY.parent / page).exists() for page in pages), row[0]
