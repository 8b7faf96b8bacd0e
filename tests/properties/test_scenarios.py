"""Each scenario of the work queue has a test that bears its number."""

from __future__ import annotations

import re
from pathlib import Path

CONTRACT = Path(__file__).parents[1] / "contract"
SCENARIOS = range(1, 95)
NAMED = re.compile(r"def test_scenarios?_((?:\d\d_|and_|to_)+)")


def test_each_scenario_has_a_test() -> None:
    texts = (path.read_text() for path in CONTRACT.rglob("test_*.py"))
    named = {
        int(number)
        for text in texts
        for numbers in NAMED.findall(text)
        for number in re.findall(r"\d\d", numbers)
    }
    assert named == {*SCENARIOS}
