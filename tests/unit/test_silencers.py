"""Each comment that silences a tool says why, on its line or directly above."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    *("sql", "queue_core", "bus", "notifications", "work_queue"),
    *("history_pipeline", "pyspark_stickybus", "stickybus", "devtools"),
)
SILENCER = re.compile(r"# *(?:noqa|type: *ignore|pragma: no cover)\b(.*)")
REASON = re.compile(r"(?:--|#) +\w.*")


def unexplained(source: str) -> Iterator[int]:
    """The lines whose silencers have no reason."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type is tokenize.COMMENT and (found := SILENCER.match(token.string)):
            line = token.start[0]
            above = lines[line - 2].strip() if line > 1 else ""
            is_told_above = above.startswith("#") and not SILENCER.match(above)
            if not (REASON.search(found[1]) or is_told_above):
                yield line


@pytest.mark.parametrize("package", PACKAGES)
def test_each_silencer_has_its_reason(package: str) -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in (ROOT / package).rglob("*.py")
        if (lines := list(unexplained(path.read_text("utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize("silencer", ["noqa", "noqa: S311", "type: ignore[misc]"])
@pytest.mark.parametrize(
    ("above", "reason", "lines"),
    [
        ("", "", [2]),
        ("x = 1  # of another line", "", [2]),
        ("x = 1", " -- no secret", []),
        ("x = 1", "  # no secret", []),
        ("# No secret.", "", []),
    ],
)
def test_a_silencer_without_a_reason_is_found(
    silencer: str, above: str, reason: str, lines: list[int]
) -> None:
    assert list(unexplained(f"{above}\nx = 2  # {silencer}{reason}\n")) == lines
