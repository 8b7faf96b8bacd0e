"""Recurring schedules: due dates, and daylight saving."""

import json
import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.model.missed_policy import MissedPolicy
from queue_core.model.recurrence import Recurrence, parse
from tests.unit.rules import BERLIN, START, crons, due_dates, moments

NEW_YORK = "America/New_York"
LORD_HOWE = "Australia/Lord_Howe"


def on_the_wall(cron: str, timezone: str, day: tuple[int, int, int]) -> list[str]:
    """What the wall clock shows at each due date of one local day, with the offset."""
    zone = ZoneInfo(timezone)
    midnight = datetime(*day, tzinfo=zone)
    begin = midnight.astimezone(UTC) - timedelta(microseconds=1)
    end = (midnight + timedelta(days=1)).astimezone(UTC) - timedelta(seconds=1)
    dates = due_dates(parse(cron=cron, timezone=timezone, start=begin), begin, end)
    assert all(date.tzinfo is UTC for date in dates)
    return [date.astimezone(zone).strftime("%H:%M%z") for date in dates]


@pytest.mark.parametrize(
    ("cron", "timezone", "day", "wall"),
    [
        # Berlin, 29 March 2026: 02:00 to 03:00 is missing.
        ("30 2 * * *", BERLIN, (2026, 3, 29), ["03:30+0200"]),
        ("0 2 * * *", BERLIN, (2026, 3, 29), ["03:00+0200"]),
        ("0 3 * * *", BERLIN, (2026, 3, 29), ["03:00+0200"]),
        ("30 1-3 * * *", BERLIN, (2026, 3, 29), ["01:30+0100", "03:30+0200"]),
        ("0 1,2 * * *", BERLIN, (2026, 3, 29), ["01:00+0100", "03:00+0200"]),
        # New York, 8 March 2026: the same hour is missing.
        ("30 2 * * *", NEW_YORK, (2026, 3, 8), ["03:30-0400"]),
        ("0 1,2 * * *", NEW_YORK, (2026, 3, 8), ["01:00-0500", "03:00-0400"]),
        # Lord Howe, 4 October 2026: 02:00 to 02:30 is missing; a moved time may pass one that
        # isn't.
        ("15,30 2 * * *", LORD_HOWE, (2026, 10, 4), ["02:30+1100", "02:45+1100"]),
        (
            "20 */2 * * *",
            LORD_HOWE,
            (2026, 10, 4),
            ["00:20+1030", "02:50+1100", *(f"{hour:02}:20+1100" for hour in range(4, 24, 2))],
        ),
    ],
)
def test_a_cron_time_in_the_gap_fires_once_moved_ahead_by_it(
    cron: str, timezone: str, day: tuple[int, int, int], wall: list[str]
) -> None:
    assert on_the_wall(cron, timezone, day) == wall


@pytest.mark.parametrize(
    ("cron", "timezone", "day", "wall"),
    [
        # Berlin, 25 October 2026: 02:00 to 03:00 comes twice.
        ("30 2 * * *", BERLIN, (2026, 10, 25), ["02:30+0200"]),
        ("0 2,3 * * *", BERLIN, (2026, 10, 25), ["02:00+0200", "03:00+0100"]),
        (
            "*/30 1-3 * * *",
            BERLIN,
            (2026, 10, 25),
            ["01:00+0200", "01:30+0200", "02:00+0200", "02:30+0200", "03:00+0100", "03:30+0100"],
        ),
        # New York, 1 November 2026: 01:00 to 02:00 comes twice.
        ("30 1 * * *", NEW_YORK, (2026, 11, 1), ["01:30-0400"]),
        ("0 1,2 * * *", NEW_YORK, (2026, 11, 1), ["01:00-0400", "02:00-0500"]),
    ],
)
def test_a_cron_time_in_the_overlap_fires_once_in_the_first_pass(
    cron: str, timezone: str, day: tuple[int, int, int], wall: list[str]
) -> None:
    assert on_the_wall(cron, timezone, day) == wall


@pytest.mark.parametrize(
    ("timezone", "day", "hours"),
    [(BERLIN, (2026, 3, 29), 23), (BERLIN, (2026, 10, 25), 25), (NEW_YORK, (2026, 11, 1), 25)],
)
def test_a_cron_of_every_hour_fires_each_real_hour(
    timezone: str, day: tuple[int, int, int], hours: int
) -> None:
    assert len(on_the_wall("20 * * * *", timezone, day)) == hours
    assert len(on_the_wall("*/15 * * * *", timezone, day)) == 4 * hours


@pytest.mark.parametrize("timezone", [BERLIN, NEW_YORK])
@pytest.mark.parametrize("day", [(2026, 3, 8), (2026, 3, 29), (2026, 10, 25), (2026, 11, 1)])
def test_an_interval_is_elapsed_time_over_gap_and_overlap(
    timezone: str, day: tuple[int, int, int]
) -> None:
    begin = datetime(*day, tzinfo=UTC)
    rule = parse(every_seconds=timedelta(minutes=20), timezone=timezone, start=begin)
    dates = due_dates(rule, begin, begin + timedelta(days=1))
    assert dates == [begin + timedelta(minutes=20) * n for n in range(1, 73)]


@pytest.mark.parametrize(
    ("line", "same"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "@daily"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "@yearly"),
        ("5  3 * *\t*", " 5 3 * * *"),
        ("05 003 */02 01-09 *", "5 3 */2 1-9 *"),
        ("00 0 * * *", "@daily"),
        ("0 0 * JAN-Mar Sun", "0 0 * jan-mar sun"),
    ],
)
def test_two_lines_of_one_meaning_go_on_from_each_other(line: str, same: str) -> None:
    one, other = (parse(cron=cron, start=START) for cron in (line, same))
    assert one == other
    later = parse(cron=same, start=START + timedelta(days=1))
    going_on = later.going_on_from(one.to_text())
    assert going_on is not None
    assert json.loads(going_on) == later.to_dict() | {"start": START.isoformat()}


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("0 0 * * *", "0 0 1 * *"),
        ("10 0 * * *", "1 0 * * *"),
        ("0 20 * * *", "0 2 * * *"),
        ("0 0 * * *", "0 0 * * 0-6"),
        ("0 * * * *", "0 0-23 * * *"),
        ("0 0 1 * 1", "0 0 1 * *"),
    ],
)
def test_lines_that_may_differ_start_anew(line: str, other: str) -> None:
    before = parse(cron=line, start=START).to_text()
    assert parse(cron=other, start=START).going_on_from(before) is None
    elsewhere = parse(cron=line, timezone=BERLIN, start=START)
    assert elsewhere.going_on_from(before) is None


@given(
    crons, st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE, "UTC"]), moments, st.integers(0, 200_000)
)
def test_the_next_date_is_the_same_wherever_the_search_begins(
    cron: str, timezone: str, begin: datetime, seconds: int
) -> None:
    rule = parse(cron=cron, timezone=timezone, start=begin)
    first = rule.next_after(None, begin)
    assert first is not None
    between = begin + min(timedelta(seconds=seconds), first - begin - timedelta(microseconds=1))
    assert rule.next_after(between, begin) == first
    assert begin < first


@given(crons, moments)
def test_a_cron_date_is_on_the_wall_or_in_a_gap(cron: str, begin: datetime) -> None:
    """Every due date is a minute that the rule names, or an hour past one that was missing."""
    zone = ZoneInfo(BERLIN)
    date = parse(cron=cron, timezone=BERLIN, start=begin).next_after(None, begin)
    assert date is not None
    minute = cron.split(maxsplit=1)[0]
    allowed = range(0, 60, 20) if minute == "*/20" else [int(part) for part in minute.split(",")]
    assert date.astimezone(zone).minute in allowed
    assert (date.second, date.microsecond) == (0, 0)


@given(moments, st.timedeltas(timedelta(milliseconds=10), timedelta(days=400)), moments)
def test_an_interval_never_drifts(start: datetime, every: timedelta, previous: datetime) -> None:
    date = parse(every_seconds=every, start=start).next_after(previous, previous)
    assert date is not None
    assert (date - start) % every == timedelta()
    assert start < date
    assert previous < date
    assert date - max(previous, start) <= every


@pytest.mark.parametrize(
    ("cron", "dates"),
    [
        ("0 0 * * 0", ["2026-01-04", "2026-01-11"]),
        ("0 0 * * 7", ["2026-01-04", "2026-01-11"]),
        ("0 0 * * SUN", ["2026-01-04", "2026-01-11"]),
        ("@weekly", ["2026-01-04", "2026-01-11"]),
        ("0 0 * * 1", ["2026-01-05", "2026-01-12"]),
        ("0 0 * * 5-7", ["2026-01-02", "2026-01-03", "2026-01-04", "2026-01-09"]),
        ("0 0 * * fri-sun", ["2026-01-02", "2026-01-03", "2026-01-04", "2026-01-09"]),
        ("0 0 * * 2/2", ["2026-01-03", "2026-01-06", "2026-01-08", "2026-01-10"]),
        ("0 0 * * */3", ["2026-01-03", "2026-01-04", "2026-01-07", "2026-01-10"]),
        # Both day fields restricted: either is enough.
        ("0 0 13 * 5", ["2026-01-02", "2026-01-09", "2026-01-13", "2026-01-16"]),
        ("0 0 29 2 1", ["2026-02-02", "2026-02-09", "2026-02-16", "2026-02-23", "2027-02-01"]),
        ("0 0 30 2 1", ["2026-02-02", "2026-02-09", "2026-02-16", "2026-02-23", "2027-02-01"]),
        ("@monthly", ["2026-02-01", "2026-03-01"]),
        ("0 0 31 jan,mar *", ["2026-01-31", "2026-03-31"]),
        ("@yearly", ["2027-01-01", "2028-01-01"]),
        ("0 0 29 2 *", ["2028-02-29", "2032-02-29"]),
    ],
)
def test_cron_means_what_cron_means(cron: str, dates: list[str]) -> None:
    rule = parse(cron=cron, start=START)
    found, date = [], START
    for _ in dates:
        following = rule.next_after(date, START)
        assert following is not None
        date = following
        found.append(date.date().isoformat())
    assert found == dates


def test_a_day_that_no_month_has_costs_no_search_for_it() -> None:
    rule, date, began = parse(cron="0 0 31 2,4 1", start=START), START, time.process_time()
    for _ in range(30):
        date = rule.next_after(date, START) or START
    # A search to the year 9999 takes 0.1 s, thirty of them 3 s.
    assert time.process_time() - began < 1.0
    assert date > START


def test_a_leap_day_is_found_beside_a_weekday() -> None:
    begin = datetime(2028, 2, 28, tzinfo=UTC)
    date = parse(cron="0 0 29 2 1", start=begin).next_after(None, begin)
    assert date == datetime(2028, 2, 29, tzinfo=UTC)


def test_the_first_date_without_a_previous_one_is_after_now() -> None:
    hourly = parse(cron="@hourly", start=START)
    now = START + timedelta(hours=5)
    assert hourly.next_after(None, now) == START + timedelta(hours=6)
    assert hourly.next_after(START + timedelta(hours=1), now) == START + timedelta(hours=2)
    assert hourly.next_after(None, START - timedelta(days=9)) == START + timedelta(hours=1)


def test_a_rule_survives_its_row() -> None:
    rule = parse(cron="30 2 * * 1-5", timezone=BERLIN, start=START, missed=MissedPolicy.SKIP)
    copy = Recurrence.from_dict(json.loads(json.dumps(rule.to_dict())))
    assert copy == rule
    assert copy.start == rule.start
    assert copy.next_after(None, START) == rule.next_after(None, START)


def test_rules_are_equal_whenever_they_started() -> None:
    later = START + timedelta(days=1)
    assert parse(every_seconds=60, start=START) == parse(
        every_seconds=timedelta(minutes=1), start=later
    )
    assert parse(every_seconds=60, start=START) != parse(every_seconds=61, start=START)
    assert parse(cron="@daily", start=START) != parse(cron="@daily", timezone=BERLIN, start=START)
