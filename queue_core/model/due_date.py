"""The due date of an entry: a date, or a delay from now."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from queue_core.errors import InvalidPostError
from queue_core.runtime.arguments import to_float
from queue_core.runtime.clock import in_utc
from queue_core.runtime.exact import exact_duration
from queue_core.runtime.shown import shown


def due_date(
    at: datetime | None,
    delay: timedelta | float | None,
    *,
    queue_name: str,
    now: Callable[[], datetime],
) -> datetime:
    """The date in UTC that exactly one of `at` and `delay` (a number is in seconds) gives.

    Raises InvalidPostError for both, for none, or for a delay that is negative or leads past the
    calendar; NaiveDateTimeError.
    """
    if (at is None) == (delay is None):
        raise InvalidPostError(
            f"{queue_name}: give either at=… (an aware date) or delay=… (seconds or a timedelta). "
            "Nothing was written.",
            queue_name=queue_name,
            key="at",
        )
    if at is not None:
        return in_utc(at, key="at", queue_name=queue_name)
    length = _length(delay)
    try:
        if length is not None and length >= timedelta():
            return now() + length
    except OverflowError:
        pass  # past the calendar
    raise _not_a_delay(delay, queue_name)


def _length(delay: Any) -> timedelta | None:
    exact = exact_duration(delay)
    try:
        return timedelta(seconds=to_float(delay)) if exact is None else exact
    except Exception:  # noqa: BLE001 -- of the caller's class: what is no number is no delay
        return None


def _not_a_delay(delay: object, queue_name: str) -> InvalidPostError:
    return InvalidPostError(
        f"{queue_name}: delay={shown(delay)} gives no date that can be stored. Allowed: seconds or "
        "a timedelta, 0 or more. Nothing was written.",
        queue_name=queue_name,
        key="delay",
        value=shown(delay),
    )
