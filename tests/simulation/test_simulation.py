"""The invariants hold over seeded simulations, and the simulator has teeth."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import URL

from tests.simulation.database import Databases
from tests.simulation.planted import BUGS, planted
from tests.simulation.seeds import databases_in, in_memory, run_seed, shrink
from tests.simulation.simulation import simulate
from tests.simulation.steps import Behaviour, Ending, Go, Kill, Post, Start, Step


@pytest.fixture(scope="module")
def databases() -> Iterator[Databases]:
    with in_memory() as folder:
        found = databases_in(folder)
        yield found
        found.close()


@pytest.mark.sqlite
@pytest.mark.parametrize("first", range(1000, 1200, 25))
def test_no_seed_breaks_an_invariant(databases: Databases, first: int) -> None:
    for seed in range(first, first + 25):
        _, _, result = run_seed(databases, seed)
        assert result.violations == [], "\n".join(
            [*result.trace, *map(str, result.violations), f"SEED={seed} make simulate"]
        )


@pytest.mark.parametrize(
    "database_name",
    [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("postgresql", "mariadb")],
)
def test_no_seed_breaks_an_invariant_on_a_server(database_url: URL) -> None:
    databases = Databases(database_url)
    try:
        for seed in range(2000, 2015):
            _, _, result = run_seed(databases, seed)
            assert result.violations == [], "\n".join([*result.trace, *map(str, result.violations)])
    finally:
        databases.close()


@pytest.mark.sqlite
def test_a_seed_gives_the_same_trace_each_time(databases: Databases) -> None:
    settings, steps, first = run_seed(databases, 1)
    _, _, again = run_seed(databases, 1)
    replayed = simulate(databases, settings, steps)

    assert first.trace == again.trace == replayed.trace


CAUGHT = {
    "capacity_not_given_back": 100,
    "hand_over_on_the_commit_event": 104,
    "retries_lost_at_restart": 106,
    "signal_before_commit": 109,
    "start_without_lease": 102,
}
"""Planted bugs, and a seed that shows each. `python -m tests.simulation` with PLANTED=… finds others."""


@pytest.mark.sqlite
@pytest.mark.parametrize("bug", CAUGHT)
def test_a_planted_bug_is_caught(databases: Databases, bug: str) -> None:
    seed = CAUGHT[bug]
    with in_memory() as folder, planted(bug):
        spoilt = Databases(databases_in(folder).url)
        _, _, result = run_seed(spoilt, seed)
        spoilt.close()

    assert result.violations
    assert run_seed(databases, seed)[2].violations == []
    assert bug in BUGS


@pytest.mark.sqlite
def test_a_failing_list_of_steps_is_made_short(databases: Databases) -> None:
    steps: list[Step] = [
        Start("a1"),
        Start("b1"),
        Post("b1", "bus", (1,), Behaviour(), Ending.OWN),
        Post("a1", "bus", (2,), Behaviour(), Ending.OWN),
        Go("a1", "bus.handler0"),
        Kill("b1"),
    ]
    settings, _, _ = run_seed(databases, 1)
    with in_memory() as folder, planted("signal_before_commit"):
        spoilt = Databases(databases_in(folder).url)
        shortest, result = shrink(spoilt, settings, steps)
        spoilt.close()

    assert len(shortest) <= len(steps)
    assert result.trace
