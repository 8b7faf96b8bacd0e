"""Dates of a recurring schedule that were missed follow its policy."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.model.missed_policy import MissedPolicy
from queue_core.model.recurrence import MAX_FIRINGS, parse
from tests.unit.rules import BERLIN, START, crons, due_dates, moments


def test_nothing_is_due_before_its_time() -> None:
    rule = parse(every_seconds=60, start=START)
    first = START + timedelta(seconds=60)
    assert rule.due(None, START) == ([], first)
    assert rule.due(None, first - timedelta(microseconds=1)) == ([], first)
    assert rule.due(None, first) == ([first], first + timedelta(seconds=60))
    assert rule.due(first, first) == ([], first + timedelta(seconds=60))


@pytest.mark.parametrize("policy", list(MissedPolicy))
def test_a_date_on_time_fires_under_every_policy(policy: MissedPolicy) -> None:
    rule = parse(cron="@hourly", start=START, missed=policy)
    date = START + timedelta(hours=1)
    dates, following = rule.due(START, date + timedelta(milliseconds=3))
    assert dates == [date]
    assert following == date + timedelta(hours=1)


def test_missed_dates_fire_once_for_the_latest_by_default() -> None:
    rule = parse(cron="@hourly", start=START)
    now = START + timedelta(hours=5, minutes=30)
    assert rule.due(None, now) == ([START + timedelta(hours=5)], START + timedelta(hours=6))


def test_missed_dates_fire_each_if_that_is_asked_for() -> None:
    rule = parse(cron="@hourly", start=START, missed=MissedPolicy.FIRE_ALL)
    now = START + timedelta(hours=3, minutes=30)
    assert rule.due(START + timedelta(hours=1), now)[0] == [
        START + timedelta(hours=n) for n in (2, 3)
    ]


def test_firing_all_is_bounded_to_the_latest() -> None:
    rule = parse(every_seconds=1, start=START)
    now = START + timedelta(days=365)
    dates, following = rule.due(None, now, MissedPolicy.FIRE_ALL)
    assert dates == [now - timedelta(seconds=n) for n in reversed(range(MAX_FIRINGS))]
    assert following == now + timedelta(seconds=1)


def test_missed_dates_are_skipped_past_their_grace() -> None:
    rule = parse(cron="@hourly", start=START)
    date = START + timedelta(hours=5)
    skip = MissedPolicy.SKIP
    assert rule.due(None, date + timedelta(seconds=59), skip)[0] == [date]
    assert rule.due(None, date + timedelta(seconds=60), skip) == ([], date + timedelta(hours=1))
    assert rule.due(None, date + timedelta(seconds=60), skip, grace_seconds=61)[0] == [date]


@given(
    crons, moments, st.timedeltas(timedelta(), timedelta(days=21)), st.sampled_from(MissedPolicy)
)
def test_what_is_due_is_the_end_of_what_was_missed(
    cron: str, start: datetime, missed: timedelta, policy: MissedPolicy
) -> None:
    rule = parse(cron=cron, timezone=BERLIN, start=start)
    now = start + missed
    every = due_dates(rule, start, now)
    dates, following = rule.due(None, now, policy)
    assert following == rule.next_after(now, now)
    match policy:
        case MissedPolicy.FIRE_ALL:
            assert dates == every[-MAX_FIRINGS:]
        case MissedPolicy.FIRE_ONCE:
            assert dates == every[-1:]
        case MissedPolicy.SKIP:
            assert dates == [date for date in every[-1:] if date > now - timedelta(seconds=60)]
