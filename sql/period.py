"""The time that a partition of history holds."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum


class Period(StrEnum):
    """The time that a partition holds."""

    DAY = "day"
    MONTH = "month"
    YEAR = "year"

    def begin(self, date: datetime) -> datetime:
        """The begin of the period of a date (UTC)."""
        midnight = date.replace(hour=0, minute=0, second=0, microsecond=0)
        match self:
            case Period.DAY:
                return midnight
            case Period.MONTH:
                return midnight.replace(day=1)
            case Period.YEAR:
                return midnight.replace(month=1, day=1)

    def end(self, date: datetime) -> datetime:
        """The end of the period of a date (UTC), which is the begin of the next."""
        longest = {Period.DAY: 1, Period.MONTH: 31, Period.YEAR: 366}[self]
        return self.begin(self.begin(date) + timedelta(days=longest))
