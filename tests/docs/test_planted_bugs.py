"""The pages tell how many bugs are planted to try out simulator and models."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.contract.work_queue import planted_in_docs, planted_in_schedules, planted_in_tasks
from tests.simulation import planted

PAGES = Path(__file__).resolve().parents[2] / "docs/explanation"
OF_MODELS = planted_in_tasks.BUGS, planted_in_docs.BUGS, planted_in_schedules.BUGS


@pytest.mark.parametrize(
    ("page", "sentence", "bugs"),
    [
        ("reliability.md", r"All (\d+) planted bugs are caught", len(planted.BUGS)),
        ("work-queue.md", r"find (\d+) bugs that were planted", sum(map(len, OF_MODELS))),
    ],
)
def test_a_page_tells_the_number_of_planted_bugs(page: str, sentence: str, bugs: int) -> None:
    text = " ".join((PAGES / page).read_text("utf-8").split())
    assert re.findall(sentence, text) == [str(bugs)]
