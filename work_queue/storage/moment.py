"""One modification's time and claimant, and what follows from both."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from queue_core.errors import InvalidRequestError
from sql.tables import CLAIMANT_BYTES
from work_queue.task import NOBODY

_MINUTE = timedelta(minutes=1)
_LAST_MINUTE = datetime.max.replace(second=0, microsecond=0, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Moment:
    """By the database's clock, `now`; `claimant` acts."""

    now: datetime
    claimant: str

    @property
    def finisher(self) -> str:
        """The claimant as history names it: only who holds nothing has a longer name."""
        return self.claimant.encode()[:CLAIMANT_BYTES].decode(errors="ignore")

    def arrival(self, delay: timedelta | float | None, at: datetime | None = None) -> datetime:
        """When something arrives: at a date, or a time from now."""
        if at is not None:
            return at
        try:
            return self.now + (
                delay if isinstance(delay, timedelta) else timedelta(seconds=delay or 0)
            )
        except OverflowError as error:
            raise InvalidRequestError(
                f"delay={delay} leads past the calendar. Nothing was written.",
                key="delay",
                value=delay,
            ) from error

    def holder(self, arrival: datetime) -> str:
        """Who holds what this claimant writes with this arrival."""
        return self.claimant if arrival > self.now else NOBODY

    def held_by_another(self, row: Any) -> bool:
        """Whether another claimant holds a task or set."""
        return row.arrival_date > self.now and row.claimant not in {NOBODY, self.claimant}


def minute_of(date: datetime) -> datetime:
    """The end of the minute in which a date is; see `work_queue_counts`."""
    floor = date.replace(second=0, microsecond=0)
    if floor in {date, _LAST_MINUTE}:
        return floor
    return floor + _MINUTE
