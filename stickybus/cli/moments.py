"""Durations and dates as people type them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from stickybus.cli.usage import UsageError

_UNITS = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3_600.0,
    "d": 86_400.0,
    "w": 604_800.0,
    "y": 31_536_000.0,
}
_FORM = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdwy])")


def parsed_duration(text: str) -> timedelta:
    """A length of time such as `90s`, `5m` or `30d`. Raises a usage error."""
    form = _FORM.fullmatch(text.strip())
    try:
        if form:
            return timedelta(seconds=float(form[1]) * _UNITS[form[2]])
    except OverflowError:
        pass
    raise UsageError(
        f"{text!r} is no duration; write a number and a unit ({', '.join(_UNITS)}), such as 5m"
    )


def moment(text: str, *, now: datetime) -> datetime:
    """A date in UTC: so long before `now` (`30d`), or in ISO 8601 with an offset.

    Raises a usage error.
    """
    if _FORM.fullmatch(text.strip()):
        try:
            return now - parsed_duration(text)
        except OverflowError as error:
            raise UsageError(f"{text!r} lies before the year 1") from error
    try:
        return aware(text)
    except ValueError as error:
        raise UsageError(f"{error}; or write how long ago, such as 30d") from error


def aware(text: object) -> datetime:
    """A date in UTC from ISO 8601 with an offset.

    Raises ValueError, whose text names the fault.
    """
    try:
        date = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        date = None
    if date is None:
        raise ValueError(f"{text!r} is no date in ISO 8601, such as 2026-01-31T09:00:00Z")
    if date.utcoffset() is None:
        raise ValueError(f"{text!r} has no time zone; write 2026-01-31T09:00:00Z or …+01:00")
    try:
        return date.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} lies outside the years 1 to 9999 in UTC") from error
