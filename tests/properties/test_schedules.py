"""The life of a schedule whose nodes come and go.

It is compared with all wall-clock times of its zone, minute by minute.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from queue_core.model.missed_policy import MissedPolicy
from queue_core.model.recurrence import Recurrence, parse

MINUTE = timedelta(minutes=1)
GRACE = timedelta(seconds=60)
HORIZON = timedelta(days=4)
LONGEST_ABSENCE = timedelta(hours=15)
"""Shorter than what any of the rules needs for more dates than are made up for."""

# Around changes of the clock by an hour, half an hour, a whole day, and for Ramadan; and one zone
# that has none.
CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("America/St_Johns", datetime(2026, 3, 8, 5, 30, tzinfo=UTC)),
    ("Africa/Casablanca", datetime(2026, 2, 15, 2, tzinfo=UTC)),
    ("Asia/Kathmandu", datetime(2026, 6, 1, tzinfo=UTC)),
]
LOST_DAY = ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC))
minutes = st.lists(st.integers(0, 59), min_size=1, max_size=3, unique=True).map(sorted)
hours = st.none() | st.lists(st.integers(0, 23), min_size=1, max_size=4, unique=True).map(sorted)


def wall_clock(
    minute: list[int], hour: list[int] | None, zone: ZoneInfo, begin: datetime
) -> list[datetime]:
    """All due dates from `begin` to the horizon, from each minute that a wall clock could show.

    One that is shown twice counts in its first pass, if every hour is meant in both; one that is
    left out counts at the moment at which an unchanged clock would have shown it.
    """
    moments = set[datetime]()
    wall = begin.replace(tzinfo=None) - timedelta(days=2)
    for _ in range(round((HORIZON + timedelta(days=4)) / MINUTE)):
        wall += MINUTE
        if wall.minute in minute and (hour is None or wall.hour in hour):
            first, second = (
                wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)
            )
            moments.add(first)
            if hour is None and second > first:
                moments.add(second)
    return sorted(moment for moment in moments if begin < moment <= begin + HORIZON)


def fired(
    rule: Recurrence, absences: list[timedelta], policy: MissedPolicy
) -> list[tuple[datetime, datetime]]:
    """The (due date, moment of the look) of each firing of a scheduler.

    It looks after each of `absences`.
    """
    last, now, firings = None, rule.start, list[tuple[datetime, datetime]]()
    for absence in absences:
        now += absence
        dates, following = rule.due(last, now, policy)
        assert following is None or following > now
        firings += [(date, now) for date in dates]
        last = dates[-1] if dates else now
    return firings


absences = st.lists(
    st.timedeltas(timedelta(milliseconds=1), LONGEST_ABSENCE)
    | st.timedeltas(timedelta(), 2 * MINUTE),
    min_size=1,
    max_size=6,
)


@settings(max_examples=40)
@given(minutes, hours, st.sampled_from([*CHANGES, LOST_DAY]), st.integers(0, 2 * 24 * 60))
def test_no_due_date_is_left_out_or_doubled_where_clocks_change(
    minute: list[int], hour: list[int] | None, change: tuple[str, datetime], before: int
) -> None:
    zone, moment = change
    begin = moment - before * MINUTE
    cron = f"{','.join(map(str, minute))} {'*' if hour is None else ','.join(map(str, hour))} * * *"
    rule = parse(cron=cron, timezone=zone, start=begin)
    found, date = list[datetime](), rule.next_after(None, begin)
    while date is not None and date <= begin + HORIZON:
        found.append(date)
        date = rule.next_after(date, begin)
    assert found == wall_clock(minute, hour, ZoneInfo(zone), begin)


crons = st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 1,2 * * *", "15 */6 * * *", "0 0 * * *"])
rules = st.builds(
    lambda change, cron: parse(cron=cron, timezone=change[0], start=change[1] - timedelta(days=1)),
    st.sampled_from(CHANGES),
    crons,
) | st.builds(
    lambda change, every: parse(every_seconds=every, start=change[1]),
    st.sampled_from(CHANGES),
    st.timedeltas(MINUTE, timedelta(days=2)),
)


@given(rules, absences)
def test_firing_all_fires_each_date_once_in_order_however_long_nobody_was_there(
    rule: Recurrence, absences: list[timedelta]
) -> None:
    dates = [date for date, _ in fired(rule, absences, MissedPolicy.FIRE_ALL)]
    end, expected = rule.start + sum(absences, timedelta()), list[datetime]()
    date = rule.next_after(None, rule.start)
    while date is not None and date <= end:
        expected.append(date)
        date = rule.next_after(date, end)
    assert dates == expected
    assert all(before < after for before, after in pairwise(dates))


@given(rules, absences)
def test_firing_once_fires_the_latest_of_each_absence(
    rule: Recurrence, absences: list[timedelta]
) -> None:
    each = fired(rule, absences, MissedPolicy.FIRE_ALL)
    latest = {now: date for date, now in each}
    assert fired(rule, absences, MissedPolicy.FIRE_ONCE) == [
        (date, now) for now, date in latest.items()
    ]


@given(rules, absences)
def test_skipping_fires_the_latest_of_each_absence_if_it_is_within_its_grace(
    rule: Recurrence, absences: list[timedelta]
) -> None:
    once = fired(rule, absences, MissedPolicy.FIRE_ONCE)
    recent = [(date, now) for date, now in once if date > now - GRACE]
    assert fired(rule, absences, MissedPolicy.SKIP) == recent
