"""Retry policies: pure arithmetic on dates."""

import pickle
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.errors import ConfigurationError
from queue_core.model.answers import Done, Retry
from queue_core.model.retry import Failure, GiveUp, RetryLater, RetryPolicy, decide
from queue_core.model.retry_policies import (
    ExponentialRetries,
    ImmediateRetries,
    ScheduledRetries,
    policy_from_table,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
COUNTS = st.integers(1, 10_000)


def failure(
    error_count: int = 1,
    *,
    error: BaseException | None = None,
    effective_date: datetime = START,
    now: datetime = START,
) -> Failure:
    return Failure(
        error=error or ValueError("boom"),
        error_count=error_count,
        effective_date=effective_date,
        now=now,
    )


@pytest.mark.parametrize("policy", [ImmediateRetries(), ScheduledRetries(), ExponentialRetries()])
def test_every_policy_keeps_the_protocol(policy: RetryPolicy) -> None:
    assert isinstance(policy, RetryPolicy)


def test_three_immediate_retries_make_four_runs() -> None:
    now = START + timedelta(seconds=5)
    dates = [ImmediateRetries(3).next_date(failure(count, now=now)) for count in (1, 2, 3, 4)]
    assert dates == [now, now, now, None]


def test_a_schedule_counts_from_the_original_date() -> None:
    """Each run takes 7 s and begins 2 s late.

    The retries stay 5 min, 15 min, 1 h, 6 h and 24 h after the start.
    """
    policy, date, count = ScheduledRetries(), START, 0
    dates = []
    while True:
        count += 1
        following = policy.next_date(
            failure(count, effective_date=date, now=date + timedelta(seconds=9))
        )
        if following is None:
            break
        dates.append(following - START)
        date = following
    assert dates == [timedelta(minutes=m) for m in (5, 15, 60, 360, 1440)]


def test_a_schedule_never_answers_with_a_past_date() -> None:
    now = START + timedelta(days=2)
    assert ScheduledRetries().next_date(failure(1, now=now)) == now


def test_a_late_retry_moves_the_later_ones_and_keeps_their_distances() -> None:
    late = START + timedelta(days=2)
    policy = ScheduledRetries(delays=(60, 180, 600))
    assert policy.next_date(failure(1, now=late)) == late
    assert policy.next_date(failure(2, effective_date=late, now=late)) == late + timedelta(
        seconds=120
    )


@given(
    st.lists(st.floats(0, 1e6), max_size=8).map(sorted),
    st.integers(1, 12),
    st.timedeltas(timedelta(), timedelta(days=400)),
)
def test_a_schedule_has_as_many_retries_as_delays_and_none_before_now(
    delays: list[float], error_count: int, lateness: timedelta
) -> None:
    date = ScheduledRetries(tuple(delays)).next_date(failure(error_count, now=START + lateness))
    assert (date is None) == (error_count > len(delays))
    assert date is None or date >= START + lateness


def test_exponential_delays_double_up_to_the_maximum() -> None:
    policy = ExponentialRetries(
        initial_seconds=1, factor=2, maximum_seconds=10, max_retries=6, jitter=0
    )
    delays = [policy.next_date(failure(count)) for count in range(1, 8)]
    assert delays == [START + timedelta(seconds=s) for s in (1, 2, 4, 8, 10, 10)] + [None]


@given(COUNTS, st.floats(0, 1), st.floats(1, 1000), st.integers())
def test_jitter_only_shortens_and_by_no_more_than_its_fraction(
    count: int, jitter: float, factor: float, seed: int
) -> None:
    exact = ExponentialRetries(factor=factor, max_retries=10_000, jitter=0).next_date(
        failure(count)
    )
    shaken = ExponentialRetries(
        factor=factor,
        max_retries=10_000,
        jitter=jitter,
        random=Random(seed),  # noqa: S311 -- not a secret
    ).next_date(failure(count))
    assert exact is not None
    assert shaken is not None
    tick = timedelta(microseconds=1)
    assert START + (exact - START) * (1 - jitter) - tick <= shaken <= exact + tick
    assert exact - START <= timedelta(hours=1)


def test_the_same_seed_gives_the_same_delays_and_jitter_spreads_them() -> None:
    dates = [
        [ExponentialRetries(random=random).next_date(failure(5)) for _ in range(20)]
        for random in (Random(1), Random(1))  # noqa: S311 -- not a secret
    ]
    assert dates[0] == dates[1]
    assert len(set(dates[0])) == 20


@pytest.mark.parametrize("delay", [90, 90.0, timedelta(seconds=90)])
def test_a_handler_chooses_its_own_delay_also_past_the_policy_s_limit(
    delay: timedelta | float,
) -> None:
    now = START + timedelta(hours=1)
    asked = failure(50, error=RetryLater(delay), now=now)
    assert decide(ImmediateRetries(3), asked) == now + timedelta(seconds=90)


def test_a_handler_that_gives_up_has_no_further_run() -> None:
    assert decide(ImmediateRetries(3), failure(1, error=GiveUp("wrong for ever"))) is None


def test_any_other_failure_is_the_policy_s() -> None:
    assert decide(ImmediateRetries(3), failure(3, error=SystemExit(1))) == START
    assert decide(ImmediateRetries(3), failure(4)) is None


@pytest.mark.parametrize("delay", [-1, 1e12, float("nan"), float("inf"), timedelta(seconds=-1)])
def test_an_impossible_delay_is_refused_where_the_handler_asks(delay: timedelta | float) -> None:
    with pytest.raises(ValueError, match=r"delay|NaN"):
        RetryLater(delay)


def test_an_answer_with_an_impossible_time_names_its_argument() -> None:
    text: Any = "x"
    with pytest.raises(ValueError, match=r"^after='x' is not allowed"):
        Retry(after=text)
    with pytest.raises(ValueError, match=r"^keep='x' is not allowed"):
        Done(keep=text)


def test_a_chosen_delay_survives_pickling_and_tells_itself() -> None:
    asked = pickle.loads(pickle.dumps(RetryLater(5, "upstream is busy")))  # noqa: S301 -- our own bytes
    assert (asked.delay, str(asked)) == (timedelta(seconds=5), "upstream is busy, in 5 s")


class Broken:
    def next_date(self, failure: Failure) -> datetime | None:
        raise ZeroDivisionError("policy bug")


class Naive:
    def next_date(self, failure: Failure) -> datetime | None:
        return datetime(2026, 1, 1)  # noqa: DTZ001 -- the naive one is the case


class Rude(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text")

    def add_note(self, note: str, /) -> None:
        raise ValueError(note)


class Raises:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def next_date(self, failure: Failure) -> datetime | None:
        raise self.error


class Unshowable(Broken):
    def __repr__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Broken(), "policy bug"),
        (Naive(), "no time zone"),
        (Raises(SystemExit("the end")), "SystemExit: the end"),
        (Raises(KeyboardInterrupt()), "KeyboardInterrupt"),
        (Raises(Rude()), "Rude: its text can't be told"),
        (Unshowable(), "policy bug"),
    ],
)
def test_a_broken_policy_ends_the_retries_and_the_failure_says_so(
    policy: RetryPolicy, reason: str
) -> None:
    failed = failure()
    assert decide(policy, failed) is None
    assert reason in failed.error.__notes__[0]


def test_a_broken_policy_raises_nothing_where_the_error_takes_no_notes() -> None:
    assert decide(Broken(), failure(error=Rude())) is None


@pytest.mark.parametrize(
    ("table", "policy"),
    [
        ({"kind": "immediate", "max_retries": 7}, ImmediateRetries(7)),
        ({"kind": "scheduled", "delays_seconds": [60, 600]}, ScheduledRetries((60, 600))),
        ({"kind": "exponential", "factor": 3.0}, ExponentialRetries(factor=3.0)),
    ],
)
def test_a_policy_is_read_from_a_table(table: dict[str, object], policy: RetryPolicy) -> None:
    assert policy_from_table(table) == policy


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, r"kind=None is not allowed. Allowed: circuit, exponential, immediate, scheduled"),
        ({"kind": "linear"}, "kind='linear' is not allowed"),
        (
            {"kind": "immediate", "max_retries": -1},
            "max_retries=-1 is not allowed. Allowed: 0 or more",
        ),
        ({"kind": "immediate", "retries": 1}, "unexpected keyword argument 'retries'"),
        ({"kind": "immediate", "max_retries": "3"}, "'3'.* is not allowed"),
        ({"kind": "scheduled", "delays_seconds": [60, 5]}, "ascending order"),
        ({"kind": "scheduled", "delays_seconds": ["soon"]}, "ascending order"),
        ({"kind": "scheduled", "delays_seconds": [float("nan")]}, "ascending order"),
        ({"kind": "exponential", "initial_seconds": 0}, "initial_seconds=0 is not allowed"),
        ({"kind": "exponential", "factor": 0.5}, "factor=0.5 is not allowed. Allowed: 1 or more"),
        ({"kind": "exponential", "maximum_seconds": 0.5}, "maximum_seconds=0.5 is not allowed"),
        (
            {"kind": "exponential", "jitter": 2},
            "jitter=2 is not allowed. Allowed: a fraction from 0 to 1",
        ),
        ({"kind": "exponential", "max_retries": -1}, "max_retries=-1 is not allowed"),
    ],
)
def test_a_wrong_policy_names_the_key_the_value_and_what_is_allowed(
    table: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        policy_from_table(table)
