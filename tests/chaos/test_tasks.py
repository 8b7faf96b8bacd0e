"""A short run of a work queue under faults; `python -m tests.chaos tasks` makes long ones."""

from __future__ import annotations

import pytest

from tests import requirements as needs
from tests.chaos.stage import Target
from tests.chaos.tasks import run


@needs.any_database
@pytest.mark.timeout(120)
def test_no_task_is_lost_or_finished_twice_while_members_are_killed(database_name: str) -> None:
    result = run(Target(database_name), tasks=100, faults=4, seed=41, say=lambda _what: None)

    assert result.problems == []
    assert result.faults == {"kill": 4}
