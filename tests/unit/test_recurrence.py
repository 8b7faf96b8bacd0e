"""Recurring schedules: due dates, daylight saving, and what happens to missed ones."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.errors import InvalidPostError, NaiveDateTimeError
from queue_core.model.missed_policy import MissedPolicy
from queue_core.model.recurrence import MAX_FIRINGS, Recurrence, parse

START = datetime(2026, 1, 1, tzinfo=UTC)
BERLIN = "Europe/Berlin"
NEW_YORK = "America/New_York"
LORD_HOWE = "Australia/Lord_Howe"


def due_dates(rule: Recurrence, begin: datetime, end: datetime) -> list[datetime]:
    """All due dates in (begin, end], found one by one from each other."""
    dates = []
    date = rule.next_after(begin, begin)
    while date is not None and date <= end:
        dates.append(date)
        date = rule.next_after(date, end)
    return dates


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


moments = st.datetimes(
    datetime(2024, 1, 1),  # noqa: DTZ001 -- hypothesis wants naive bounds
    datetime(2028, 1, 1),  # noqa: DTZ001
).map(lambda d: d.replace(tzinfo=UTC))
crons = st.sampled_from(
    [
        "30 2 * * *",
        "*/20 2,3 * * *",
        "0 1,2 * * *",
        "17 * * * *",
        "0 0 * * 1-5",
        "15,30 2 * * sun",
        "0 4 1 * *",
    ]
)


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


def test_the_first_date_without_a_previous_one_is_after_now() -> None:
    hourly = parse(cron="@hourly", start=START)
    now = START + timedelta(hours=5)
    assert hourly.next_after(None, now) == START + timedelta(hours=6)
    assert hourly.next_after(START + timedelta(hours=1), now) == START + timedelta(hours=2)
    assert hourly.next_after(None, START - timedelta(days=9)) == START + timedelta(hours=1)


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


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "* * * *",
        "* * * * * *",
        "61 * * * *",
        "x * * * *",
        "* * * * 8",
        "* * * * mon#2",
        "* * * * 1/0",
        "@often",
        "0 0 30 2 *",
    ],
)
def test_a_cron_line_that_can_not_work_is_refused(cron: str) -> None:
    with pytest.raises(InvalidPostError, match="Nothing was scheduled") as caught:
        parse(cron=cron, start=START)
    assert (caught.value.key, caught.value.value) == ("cron", cron)


@pytest.mark.parametrize(
    "every",
    [
        *(
            0,
            -1,
            0.009,
            1e20,
            float("nan"),
            float("inf"),
            timedelta(),
            "5",
            b"5",
            "",
            True,
            10**400,
            [],
            object,
            int,
        ),
    ],
)
def test_an_interval_that_can_not_work_is_refused(every: Any) -> None:
    with pytest.raises(InvalidPostError, match=r"0\.01 s to a century"):
        parse(every_seconds=every, start=START)


@pytest.mark.parametrize(
    "timezone",
    [
        "Mars/Olympus",
        "../UTC",
        "America",
        "",
        "Europe/Berlin\0",
        "x" * 100_000,
        "\ud800",
        None,
        5,
        b"UTC",
        object(),
    ],
)
@pytest.mark.parametrize("rule", [{"cron": "@daily"}, {"every_seconds": 5}], ids=["cron", "every"])
def test_an_unknown_time_zone_is_refused(timezone: Any, rule: dict[str, Any]) -> None:
    with pytest.raises(InvalidPostError, match="timezone="):
        parse(**rule, timezone=timezone, start=START)


@pytest.mark.parametrize("missed", ["SKIP", None, True, 5, object()])
def test_what_is_no_policy_for_missed_dates_is_refused(missed: Any) -> None:
    with pytest.raises(InvalidPostError, match=r"missed=.*MissedPolicy\.FIRE_ONCE"):
        parse(every_seconds=5, missed=missed, start=START)


@pytest.mark.parametrize("cron", [5, b"@daily", [], datetime.now, True])
def test_a_cron_line_that_is_no_text_is_refused(cron: Any) -> None:
    with pytest.raises(InvalidPostError, match=r"cron=.*five fields"):
        parse(cron=cron, start=START)


def test_a_schedule_has_one_rule_and_an_aware_start() -> None:
    with pytest.raises(InvalidPostError, match=r"cron=….* or every=….*neither"):
        parse(start=START)
    with pytest.raises(InvalidPostError, match=r"cron=….* or every=….*both"):
        parse(cron="@daily", every_seconds=5, start=START)
    with pytest.raises(NaiveDateTimeError):
        parse(cron="@daily", start=datetime(2026, 1, 1))  # noqa: DTZ001 -- the naive one is the case
