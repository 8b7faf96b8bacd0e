"""All features together on real tables against a model, whatever comes.

Keys, order keys, limit keys, dependencies, groups, limits, pauses, priorities and retry policies in
any combination; failures, exactly-once effects, retries by hand, removals, truncations, callers'
transactions, nodes that die, sleep or leave, and keep all history or only failures: nothing is lost
or done twice, each starts in its turn and no more than the limit says, effects and callbacks come
once, and in the end all has ended.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import URL

from tests import requirements as needs
from tests.conftest import NewDatabase
from tests.properties.life.bugs import BUGS, Bug
from tests.properties.life.cluster_life import ClusterLife
from tests.properties.life.node_life import NODES
from tests.template import template


@pytest.mark.sqlite
@pytest.mark.timeout(300)
def test_all_is_as_promised(tmp_path: Path) -> None:
    numbers = count()

    def life() -> ClusterLife:
        path = tmp_path / f"{next(numbers)}.db"
        shutil.copyfile(template(), path)
        return ClusterLife(URL.create("sqlite", database=str(path)))

    _run(life, settings(max_examples=20, stateful_step_count=30))


def _live(tmp_path: Path, bug: Bug) -> None:
    """Take the steps of a bug, and let all run to its end."""
    path = tmp_path / "life.db"
    shutil.copyfile(template(), path)
    life = ClusterLife(URL.create("sqlite", database=str(path)))
    try:
        life.begin(kept=[bug.kept] * NODES)
        bug.steps(life)
    except BaseException:
        life.cluster.close()
        raise
    life.teardown()


@pytest.mark.sqlite
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(tmp_path: Path, bug: str) -> None:
    with BUGS[bug].planted(), pytest.raises(AssertionError):
        _live(tmp_path, BUGS[bug])


@pytest.mark.sqlite
@pytest.mark.parametrize("bug", BUGS)
def test_the_steps_to_a_bug_are_right_without_it(tmp_path: Path, bug: str) -> None:
    _live(tmp_path, BUGS[bug])


@needs.server
def test_all_is_as_promised_on_a_server(new_database: NewDatabase) -> None:
    numbers = count()
    _run(
        lambda: ClusterLife(new_database(f"life{next(numbers)}")),
        settings(max_examples=8, stateful_step_count=20),
    )


def _run(life: Callable[[], ClusterLife], how: settings) -> None:
    run_state_machine_as_test(life, settings=how)  # type: ignore[arg-type]  # any factory will do
