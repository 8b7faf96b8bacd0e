"""Prose in Markdown has up to 100 columns, but for tables, code and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = 100
PAGES = sorted(
    str(page.relative_to(ROOT)) for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
)


def too_long(text: str) -> Iterator[int]:
    """The numbers of lines of prose with more columns."""
    in_code = False
    for number, line in enumerate(text.splitlines(), start=1):
        first = line.lstrip()
        if first.startswith("```"):
            in_code = not in_code
        elif len(line) > COLUMNS and not in_code and not first.startswith(("|", "![")):
            yield number


@pytest.mark.parametrize("page", PAGES)
def test_prose_fits_in_its_columns(page: str) -> None:
    assert list(too_long((ROOT / page).read_text("utf-8"))) == []


def test_only_long_prose_is_found() -> None:
    long = "x" * (COLUMNS + 1)
    assert list(too_long(f"{long}\n| {long} |\n```\n{long}\n```\n{long[1:]}\n- {long}")) == [1, 7]
