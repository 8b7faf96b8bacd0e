"""The page on entries that wait has each reason that `explain` gives."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/how-to/why-not-running.md"


def test_the_page_has_each_code() -> None:
    sources = (ROOT / "queue_core/reading").glob("*.py")
    given = {code for path in sources for code in re.findall(r'code="([a-z-]+)"', path.read_text())}
    told = set(re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(), re.MULTILINE))
    assert told == given
