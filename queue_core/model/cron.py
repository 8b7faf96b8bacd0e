"""Due dates of a cron line.

Cron is read in the schedule's time zone, as wall-clock time. APScheduler's trigger finds the
wall-clock times; their shifts by daylight saving are decided here, as its own answers depend on
where the search began (3.11.3: in the gap `0 1,2 * * *` loses its second firing, in the overlap `30
2 * * *` fires twice):

- A time in the gap fires once, moved ahead by the gap: 02:30 at 03:30 where 02:00 to 03:00 is
  missing.
- A time in the overlap fires once, in the first pass; if the hour field begins with `*`, in both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger

from queue_core.errors import InvalidPostError
from queue_core.runtime.exact import exact_text
from queue_core.runtime.shown import shown

_TICK = timedelta(microseconds=1)
_DAY = timedelta(days=1)
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS = 5
CRON = f"five fields or one of {', '.join(_MACROS)}"
"""The allowed form of a cron line."""


def plain_line(expression: str) -> str:
    """The line without macros, capitals, spaces and leading zeros, with the same dates."""
    fields = _MACROS.get(expression, expression).lower().split()
    return re.sub(r"\b0+(?=\d)", "", " ".join(fields))


def zone_of(timezone: str) -> ZoneInfo:
    """The time zone of that name. Raises InvalidPostError if there is none."""
    try:
        return ZoneInfo(exact_text(timezone) or "")
    except (KeyError, ValueError, OSError) as error:
        raise invalid("timezone", timezone, "a name such as UTC or Europe/Berlin") from error


def cron_rule(expression: str, timezone: str) -> Callable[[datetime], datetime | None]:
    """From a date to the next due date. Raises InvalidPostError for a bad line or time zone."""
    zone = zone_of(timezone)
    fields = plain_line(expression).split()
    if len(fields) != FIELDS:
        raise invalid("cron", expression, f"{CRON}, not {len(fields)} fields")
    try:
        minute, hour, day, month, weekday = fields
        weekdays = _weekdays(weekday)
        # Cron runs when either day field matches if both are restricted; APScheduler asks for both.
        days = [(day, weekdays)]
        if "*" not in (day[0], weekday[0]):
            days = [("*", weekdays), *([(day, "*")] if _exists(day, month) else [])]
        triggers = [
            CronTrigger(minute=minute, hour=hour, day=d, month=month, day_of_week=w, timezone=UTC)
            for d, w in days
        ]
    except (ValueError, TypeError) as error:
        raise invalid("cron", expression, f"{CRON} ({error})") from error

    def next_wall_time(wall: datetime) -> datetime | None:
        found = (trigger.get_next_fire_time(None, wall + _TICK) for trigger in triggers)
        return min((date for date in found if date is not None), default=None)

    return partial(_after_in_zone, zone, next_wall_time, hour.startswith("*"))


def _exists(day: str, month: str) -> bool:
    """Whether the months have such a day: a search for one that has none goes on to year 9999."""
    trigger = CronTrigger(year="2000-2003", month=month, day=day, timezone=UTC)
    return trigger.get_next_fire_time(None, datetime(2000, 1, 1, tzinfo=UTC)) is not None


def _after_in_zone(
    zone: ZoneInfo,
    next_wall_time: Callable[[datetime], datetime | None],
    every_hour: bool,  # noqa: FBT001 -- bound by partial, nobody reads a call of it
    date: datetime,
) -> datetime | None:
    """The first moment after `date` whose wall-clock time in `zone` is due.

    Wall-clock times carry UTC as their label, so that the search for them knows nothing of daylight
    saving. Around a change of offset their order isn't the order of moments: the search begins
    early enough and goes on until no later wall-clock time can be an earlier moment.
    """
    wall: datetime | None = date + min(_offsets(zone, date))
    best: datetime | None = None
    while wall is not None and (wall := next_wall_time(wall)) is not None:
        for moment in _moments(zone, wall, every_hour=every_hour):
            if moment > date and (best is None or moment < best):
                best = moment
        if best is not None and wall - max(_offsets(zone, best)) >= best:
            break
    return best


def _offsets(zone: ZoneInfo, date: datetime) -> list[timedelta]:
    around = (date - _DAY, date, date + _DAY)
    return [moment.astimezone(zone).utcoffset() or timedelta() for moment in around]


def _moments(zone: ZoneInfo, wall: datetime, *, every_hour: bool) -> list[datetime]:
    """When the wall clock shows `wall`: once, or in both passes of an overlap (`every_hour`)."""
    # In a gap, fold 0 has the offset of before it, which is the move ahead that we want.
    first, second = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return [first, second] if every_hour and second > first else [first]


def _weekdays(text: str) -> str:
    """Cron's weekdays, Sunday 0 or 7, by name, as APScheduler counts from Monday."""
    if text == "*":
        return text
    chosen: set[int] = set()
    for token in text.lower().split(","):
        span, _, step = token.partition("/")
        first, dash, last = ("0", "-", "6") if span == "*" else span.partition("-")
        low = _weekday(first)
        high = _weekday(last) if dash else 6 if step else low
        # fri-sun and 5-7 alike
        high += 7 if high < low else 0
        chosen.update(number % 7 for number in range(low, high + 1, int(step or 1)))
    return ",".join(_WEEKDAYS[number] for number in sorted(chosen))


def _weekday(text: str) -> int:
    number = _WEEKDAYS.index(text) if text in _WEEKDAYS else int(text)
    if not 0 <= number <= len(_WEEKDAYS):
        raise ValueError(f"weekday {text}")
    return number


def invalid(key: str, value: object, allowed: str) -> InvalidPostError:
    """The error of a part of a rule that can't work."""
    return InvalidPostError(
        f"{key}={shown(value)} is not allowed. Allowed: {allowed}. Nothing was scheduled.",
        key=key,
        value=value,
    )
