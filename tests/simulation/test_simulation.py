"""The invariants hold over seeded simulations, and the simulator has teeth."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import URL

from tests import requirements as needs
from tests.checker import Invariant
from tests.cloners import SQLiteFiles
from tests.simulation.database import Databases
from tests.simulation.planted import BUGS, planted
from tests.simulation.scenes import SCENES
from tests.simulation.seeds import databases_in, in_memory, run_seed, shrink
from tests.simulation.settings import Settings
from tests.simulation.simulation import simulate
from tests.simulation.steps import Behaviour, Ending, Fault, Go, Jump, Kill, Post, Start, Step


@pytest.fixture(scope="module")
def databases() -> Iterator[Databases]:
    with in_memory() as folder:
        found = databases_in(folder)
        yield found
        found.close()


@pytest.mark.sqlite
@pytest.mark.parametrize(
    "first", [1000, *(pytest.param(one, marks=pytest.mark.slow) for one in range(1025, 1300, 25))]
)
def test_no_seed_breaks_an_invariant(databases: Databases, first: int) -> None:
    for seed in range(first, first + 25):
        _, _, result = run_seed(databases, seed)
        assert result.violations == [], "\n".join(
            [*result.trace, *map(str, result.violations), f"SEED={seed} make simulate"]
        )


@pytest.mark.slow
@pytest.mark.sqlite
def test_no_seed_breaks_an_invariant_with_circuits(databases: Databases) -> None:
    for seed in range(3000, 3040):
        _, _, result = run_seed(databases, seed, circuit=True)
        assert result.violations == [], "\n".join([*result.trace, *map(str, result.violations)])


@needs.server
def test_no_seed_breaks_an_invariant_on_a_server(database_url: URL) -> None:
    databases = Databases(database_url)
    try:
        for seed in range(2000, 2005):
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


@pytest.mark.slow
@pytest.mark.sqlite
def test_a_seed_gives_the_same_trace_whatever_ran_before(databases: Databases) -> None:
    """A failure found in a long run must fail again by itself.

    Connections are kept between simulations.
    """
    warm = [run_seed(databases, seed)[2].trace for seed in range(1, 7)]
    for seed, trace in enumerate(warm, start=1):
        with in_memory() as folder:
            cold = databases_in(folder)
            assert run_seed(cold, seed)[2].trace == trace
            cold.close()


@contextmanager
def spoilt(bug: str, files: SQLiteFiles) -> Iterator[Databases]:
    """A database of an engine with this bug."""
    with in_memory() as folder, planted(bug):
        databases = Databases(files.migrated(folder / "spoilt.db"))
        try:
            yield databases
        finally:
            databases.close()


_STALE = re.compile("raised (TypeError|AttributeError|NameError|ImportError)")


@pytest.mark.slow
@pytest.mark.sqlite
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(databases: Databases, sqlite_files: SQLiteFiles, bug: str) -> None:
    scene = SCENES[bug]
    with spoilt(bug, sqlite_files) as engine_with_bug:
        result = simulate(engine_with_bug, scene.settings, scene.steps)

    assert result.violations
    # A bug that no longer fits into the engine shows itself by raising, and proves nothing.
    raised = [one.explanation for one in result.violations if _STALE.search(one.explanation)]
    assert raised == []
    assert simulate(databases, scene.settings, scene.steps).violations == []


@pytest.mark.sqlite
@pytest.mark.parametrize("jumps", [[], [300.0]])
def test_only_a_date_that_is_set_back_shows_a_lease_that_ends_at_a_date(
    sqlite_files: SQLiteFiles, jumps: list[float]
) -> None:
    scene = SCENES["lease_ends_at_a_date"]
    steps: list[Step] = [step for step in scene.steps if not isinstance(step, Jump)]
    steps[-1:-1] = [Jump("a1", seconds) for seconds in jumps]
    with spoilt("lease_ends_at_a_date", sqlite_files) as engine_with_bug:
        assert simulate(engine_with_bug, scene.settings, steps).violations == []


@pytest.mark.sqlite
def test_a_failing_list_of_steps_is_made_short(sqlite_files: SQLiteFiles) -> None:
    steps: list[Step] = [
        Start("a1"),
        Start("b1"),
        Post("b1", "bus", (1,), Behaviour(), Ending.OWN),
        Go("b1", "bus.handler0"),
        Post("a1", "bus", (2,), Behaviour(), Ending.OWN, fault=Fault.COMMIT_FAILED),
        Go("a1", "bus.handler0"),
        Kill("b1"),
    ]
    with spoilt("signal_before_commit", sqlite_files) as engine_with_bug:
        shortest, result = shrink(engine_with_bug, Settings(), steps)

    assert shortest == [steps[0], steps[4]]
    assert [violation.invariant for violation in result.violations] == [Invariant.NO_PHANTOM]
