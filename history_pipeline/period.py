"""A period: the time in which the entries ended that are read, counted or replayed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from queue_core.runtime.arguments import not_allowed, of_kind
from queue_core.runtime.clock import in_utc

DAY = timedelta(days=1)
_EARLIEST = datetime.min.replace(tzinfo=UTC) + 8 * DAY
"""The calendar has no day a week before the day before an earlier one."""


class Period(NamedTuple):
    """Entries are counted that ended in this time: from `since` on, and before `until`.

    None is no bound.
    """

    since: datetime | None = None
    until: datetime | None = None

    def meets(self, day: str) -> bool:
        """Whether a part of a day lies in it.

        Args:
            day: The day, in UTC, such as 2026-03-01.

        Returns:
            True if a moment of the day is in the period.

        Raises:
            ConfigurationError: It is no day.
        """
        try:
            start = datetime.fromisoformat(day).replace(tzinfo=UTC)
        except (TypeError, ValueError) as error:
            raise not_allowed("day", day, "a day, such as 2026-03-01") from error
        return (self.since is None or self.since - start < DAY) and (
            self.until is None or start < self.until
        )


EVER = Period()
"""The period of all entries."""


def period_of(since: datetime | None, until: datetime | None) -> Period:
    """The period between two aware dates. Raises NaiveDateTimeError."""
    return Period(
        None if since is None else in_utc(since, key="since"),
        None if until is None else in_utc(until, key="until"),
    )


def checked(period: Period) -> Period:
    """A caller's period, in UTC.

    Raises ConfigurationError if it is none, and NaiveDateTimeError or InvalidPostError for a date.
    """
    of_kind(period, Period, key="period")
    return period_of(*period)


def compared(now: datetime) -> dict[str, Period]:
    """The last whole day (UTC) before `now`, and the seven days before it."""
    today = max(now.astimezone(UTC), _EARLIEST)
    today = today.replace(hour=0, minute=0, second=0, microsecond=0)
    yesterday = today - DAY
    return {
        "yesterday": Period(yesterday, today),
        "week_before": Period(yesterday - 7 * DAY, yesterday),
    }
