"""docs/parity.md names a test and a page for every behaviour of the yardstick, and they exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARITY = ROOT / "docs" / "parity.md"


def rows() -> list[list[str]]:
    lines = PARITY.read_text("utf-8").splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if re.match(r"\| ([KYCE]\d|explain|priority)", line)
    ]


@cache
def names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def test_every_row_of_the_yardstick_is_listed() -> None:
    assert {f"K{number}" for number in range(1, 27)} <= {row[0].split()[0] for row in rows()}


def test_every_test_that_is_named_exists() -> None:
    named = [link for row in rows() for link in re.findall(r"`(tests/[^`]+)`", row[2])]
    assert len(named) >= len(rows())
    missing = [
        link
        for link in named
        if not (ROOT / link.partition("::")[0]).exists()
        or link.partition("::")[2] not in names_in(ROOT / link.partition("::")[0])
    ]
    assert not missing


def test_every_row_names_a_test_and_a_page_that_exists() -> None:
    for row in rows():
        assert "`tests/" in row[2], row[0]
        pages = re.findall(r"\]\(([^)#]+)", row[3])
        assert pages, row[0]
        assert all((PARITY.parent / page).exists() for page in pages), row[0]
