"""The due date of an entry: a date, or a delay from now."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from queue_core.errors import InvalidPostError
from queue_core.runtime.arguments import to_float
from queue_core.runtime.clock import in_utc
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
    try:
        length = delay if isinstance(delay, timedelta) else timedelta(seconds=to_float(delay))
        if length < timedelta():
            raise _not_a_delay(delay, queue_name)
        return now() + length
    except (OverflowError, TypeError, ValueError) as error:
        raise _not_a_delay(delay, queue_name) from error


def _not_a_delay(delay: object, queue_name: str) -> InvalidPostError:
    return InvalidPostError(
        f"{queue_name}: delay={shown(delay)} gives no date that can be stored. Allowed: seconds or "
        "a timedelta, 0 or more. Nothing was written.",
        queue_name=queue_name,
        key="delay",
        value=shown(delay),
    )
