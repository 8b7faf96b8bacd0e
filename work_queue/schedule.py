"""A recurring schedule of a queue: when a task is inserted again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from queue_core.model.missed_policy import MissedPolicy


@dataclass(frozen=True, slots=True)
class TaskSchedule:
    """By which rule a task is inserted into a queue. Dates are aware, in UTC.

    Attributes:
        queue: The queue.
        name: The name that it was declared with.
        cron: Its cron line; None: it has an interval.
        every: Its interval; None: it has a cron line.
        timezone: The time zone in which the cron line is read.
        missed: What happens to due dates that passed while nobody claimed.
        last_due: The due date of the last task that it inserted by these dates; None before the
            first.
        last_task_id: The id of that task.
        next_due: The next due date; None if there is none any more.
    """

    queue: str
    name: str
    cron: str | None
    every: timedelta | None
    timezone: str
    missed: MissedPolicy
    last_due: datetime | None
    last_task_id: str | None
    next_due: datetime | None

    @property
    def told(self) -> str:
        """Its rule, for a sentence."""
        if self.every is not None:
            return f"every {self.every.total_seconds():g} s"
        return f"{self.cron} ({self.timezone})"
