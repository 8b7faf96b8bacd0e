"""The whole life of an entry that keeps failing, under each policy: how often it runs, and when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from queue_core.model.retry import Failure, GiveUp, RetryLater, RetryPolicy, decide
from queue_core.model.retry_policies import ExponentialRetries, ImmediateRetries, ScheduledRetries

START = datetime(2026, 1, 1, tzinfo=UTC)
MOST_RUNS = 60

limits = st.integers(0, 12)
jitters = st.floats(0, 1)
immediate = st.builds(ImmediateRetries, limits)
scheduled = st.lists(st.floats(0, 1e6), max_size=8).map(
    lambda delays: ScheduledRetries(tuple(sorted(delays)))
)
exponential = st.builds(
    lambda initial, factor, most, retries, jitter, seed: ExponentialRetries(
        initial_seconds=min(initial, most),
        factor=factor,
        maximum_seconds=most,
        max_retries=retries,
        jitter=jitter,
        random=Random(seed),  # noqa: S311 -- not a secret
    ),
    st.floats(1e-3, 1e4),
    st.floats(1, 1e6),
    st.floats(1e-3, 1e7),
    limits,
    jitters,
    st.integers(),
)
policies: st.SearchStrategy[RetryPolicy] = immediate | scheduled | exponential
lateness = st.timedeltas(timedelta(), timedelta(days=40))
errors = st.one_of(
    st.builds(RuntimeError),
    st.builds(RetryLater, st.floats(0, 1e6)),
    st.builds(GiveUp),
)


def most_retries(policy: RetryPolicy) -> int:
    """How many the policy's settings allow."""
    if isinstance(policy, ScheduledRetries):
        return len(policy.delays)
    assert isinstance(policy, ImmediateRetries | ExponentialRetries)
    return policy.max_retries


@dataclass
class Run:
    """One failed run: when it was due, when it ended, and the date of the next."""

    due: datetime
    ended: datetime
    following: datetime | None


def life(policy: RetryPolicy, late: list[timedelta], failing: list[BaseException]) -> list[Run]:
    """Run an entry until it has ended or the script has."""
    runs, due = list[Run](), START
    for count, (delay, error) in enumerate(zip(late, failing, strict=True), start=1):
        ended = due + delay
        following = decide(
            policy, Failure(error=error, error_count=count, effective_date=due, now=ended)
        )
        runs.append(Run(due, ended, following))
        if following is None:
            break
        due = following
    return runs


@given(policies, st.lists(lateness, min_size=20, max_size=20))
def test_an_entry_that_keeps_failing_runs_once_and_then_as_often_as_its_policy_allows(
    policy: RetryPolicy, late: list[timedelta]
) -> None:
    runs = life(policy, late, [RuntimeError() for _ in late])
    assert len(runs) == most_retries(policy) + 1
    assert [run.following is None for run in runs] == [False] * most_retries(policy) + [True]


@given(policies, st.lists(st.tuples(lateness, errors), max_size=MOST_RUNS))
def test_whatever_fails_the_next_run_is_never_in_the_past_and_dates_never_go_back(
    policy: RetryPolicy, script: list[tuple[timedelta, BaseException]]
) -> None:
    runs = life(policy, [late for late, _ in script], [error for _, error in script])
    for run in runs:
        assert run.following is None or run.following >= run.ended >= run.due
    for run, (_, error) in zip(runs, script, strict=False):
        if isinstance(error, GiveUp):
            assert run.following is None
        if isinstance(error, RetryLater):
            assert run.following == run.ended + error.delay


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=8), st.data())
def test_a_schedule_that_is_on_time_meets_each_of_its_dates(
    delays: list[float], data: st.DataObject
) -> None:
    policy = ScheduledRetries(tuple(sorted(delays)))
    steps = [timedelta(seconds=delay) for delay in sorted(delays)]
    # Each run takes less than the way to its next date.
    gaps = [after - before for before, after in zip([timedelta(), *steps], steps, strict=False)]
    late = [data.draw(st.timedeltas(timedelta(), gap)) for gap in gaps]
    runs = life(policy, [*late, timedelta()], [RuntimeError() for _ in range(len(steps) + 1)])
    assert [run.following for run in runs] == [*(START + step for step in steps), None]


@given(exponential, st.lists(lateness, min_size=20, max_size=20))
def test_exponential_delays_grow_up_to_their_jitter_and_never_past_the_maximum(
    policy: ExponentialRetries, late: list[timedelta]
) -> None:
    runs = life(policy, late, [RuntimeError() for _ in late])
    waits = [
        (run.following - run.ended).total_seconds() for run in runs if run.following is not None
    ]
    tick = 2e-6
    for before, after in pairwise(waits):
        assert after >= min(before, policy.maximum_seconds) * (1 - policy.jitter) - tick
    for wait in waits:
        assert (
            policy.initial_seconds * (1 - policy.jitter) - tick
            <= wait
            <= policy.maximum_seconds + tick
        )
