"""The one retry: how often something runs, and what is called between its runs."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from sql.partitioning import BRIEFLY, DROP
from sql.transient import EMPTYING, HANDLER, OWN_TRANSACTION, UPGRADE_STEP, Patience, persist


class PassingError(Exception):
    """Passes by itself."""


class LastingError(Exception):
    """Does not."""


BRIEF = Patience(runs=4, pause_seconds=0.0)


def passes(error: BaseException) -> bool:
    return isinstance(error, PassingError)


def failing(times: int, error: type[Exception], runs: list[int]) -> Callable[[], str]:
    """Something that fails so often, and counts its runs."""

    def run() -> str:
        runs.append(len(runs))
        if len(runs) <= times:
            raise error(len(runs))
        return "done"

    return run


@pytest.mark.parametrize("times", [0, 1, 3])
def test_what_fails_for_a_passing_cause_runs_again_until_it_succeeds(times: int) -> None:
    runs, between = list[int](), list[None]()
    assert (
        persist(failing(times, PassingError, runs), passes, BRIEF, lambda: between.append(None))
        == "done"
    )
    assert len(runs) == times + 1
    assert len(between) == times


def test_the_last_error_is_raised_when_all_runs_have_failed() -> None:
    runs, between = list[int](), list[None]()
    with pytest.raises(PassingError, match="4"):
        persist(failing(99, PassingError, runs), passes, BRIEF, lambda: between.append(None))
    assert len(runs) == 4
    assert len(between) == 3


def test_an_error_that_lasts_is_raised_at_once() -> None:
    runs = list[int]()
    with pytest.raises(LastingError):
        persist(failing(1, LastingError, runs), passes, BRIEF)
    assert len(runs) == 1


@pytest.mark.parametrize(
    "limits", [Patience(runs=1), BRIEF.within(0.0)], ids=["one run", "no time"]
)
def test_nothing_runs_again_beyond_the_limits(limits: Patience) -> None:
    runs = list[int]()
    with pytest.raises(PassingError):
        persist(failing(1, PassingError, runs), passes, limits)
    assert len(runs) == 1


def test_no_pause_is_shorter_than_the_shortest() -> None:
    began = time.monotonic()
    limits = Patience(runs=4, pause_seconds=0.0, shortest_pause_seconds=0.05)
    assert persist(failing(3, PassingError, []), passes, limits) == "done"
    assert time.monotonic() - began >= 0.15


@pytest.mark.parametrize(
    "limits", [OWN_TRANSACTION, HANDLER, EMPTYING, UPGRADE_STEP, DROP, BRIEFLY]
)
def test_each_policy_ends(limits: Patience) -> None:
    assert min(limits.runs, limits.seconds) < 1_000
    assert 0 < limits.pause_seconds <= limits.longest_pause_seconds
