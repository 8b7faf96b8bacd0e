"""Budgets of what each step of an entry's life may write: they hold however busy the machine is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from benchmarks.databases import targets
from benchmarks.meters import COMMITS, DEAD, LOG, NEW
from benchmarks.written import BULK, DRAIN, POSTS, STATEMENTS, THROUGH, UNKEPT, written_by_us

ENTRIES = 2_000

BYTES: Mapping[str, Mapping[str, float]] = {
    "sqlite": {POSTS: 13_900, BULK: 590, DRAIN: 2_400, THROUGH: 2_400, UNKEPT: 2_200},
    "postgresql": {POSTS: 485, BULK: 420, DRAIN: 850, THROUGH: 900, UNKEPT: 900},
    "mariadb": {POSTS: 540, BULK: 265, DRAIN: 3_000, THROUGH: 960, UNKEPT: 2_900},
    "mysql": {POSTS: 960, BULK: 325, DRAIN: 1_620, THROUGH: 1_200, UNKEPT: 1_470},
}
"""Of the log, for an entry: a few per cent more than were measured.

How many outcomes share a commit varies, and so does what the purge of InnoDB writes.
"""
COUNTS: Mapping[str, Mapping[str, float]] = {
    # PostgreSQL commits the hint to other nodes by itself.
    POSTS: {COMMITS: 2.01, STATEMENTS: 1.01, NEW: 1.01, DEAD: 0.01},
    BULK: {COMMITS: 0.03, STATEMENTS: 0.03, NEW: 1.01, DEAD: 0.01},
    DRAIN: {COMMITS: 0.08, STATEMENTS: 0.2, NEW: 2.02, DEAD: 2.02},
    THROUGH: {COMMITS: 0.08, STATEMENTS: 0.2, NEW: 2.02, DEAD: 1.02},
    UNKEPT: {COMMITS: 0.11, STATEMENTS: 0.23, NEW: 2.02, DEAD: 2.02},
}
"""For an entry, on each database. An entry that is born claimed has no update."""

ON_SERVERS = [
    pytest.param(name, marks=() if name == "sqlite" else getattr(pytest.mark, name))
    for name in BYTES
]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("database", ON_SERVERS)
def test_no_step_writes_more_than_its_budget(database: str) -> None:
    with targets([database], durable=False) as found:
        wrote = written_by_us(found[database], ENTRIES)

    budgets = {
        (step, what): budget
        for step, of_bytes in BYTES[database].items()
        for what, budget in {LOG: of_bytes, **COUNTS[step]}.items()
    }
    exceeded = {
        place: (wrote[place[0]][place[1]], budget)
        for place, budget in budgets.items()
        if wrote[place[0]].get(place[1], 0) > budget
    }
    assert not exceeded
    assert wrote.keys() == BYTES[database].keys()
    # What is not read counts as nothing above, as rows of SQLite do.
    assert all(wrote[step][LOG] and wrote[step][COMMITS] for step in wrote)
