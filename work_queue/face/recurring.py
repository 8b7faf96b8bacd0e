"""Recurring schedules of queues."""

from __future__ import annotations

from datetime import timedelta
from typing import TypedDict, Unpack

from queue_core.model.missed_policy import MissedPolicy
from queue_core.runtime.own_threads import in_own_thread
from work_queue import checks
from work_queue.face.part import Part
from work_queue.schedule import TaskSchedule


class RecurOptions(TypedDict, total=False):
    """The options of a recurring schedule."""

    cron: str | None
    every: timedelta | float | None
    timezone: str
    missed: MissedPolicy


class Recurring(Part):
    """See `WorkQueue`."""

    def recur(
        self,
        queue: str,
        name: str,
        value: object = None,
        *,
        cron: str | None = None,
        every: timedelta | float | None = None,
        timezone: str = "UTC",
        missed: MissedPolicy = MissedPolicy.FIRE_ONCE,
    ) -> TaskSchedule:
        """Insert a task again and again, once for each due date, whoever claims.

        Each process may declare the schedule at its start: the same rule changes nothing. Another
        rule or value under the same name replaces it, for all; another `missed` alone leaves it
        where it stands. Claims of the queue insert due tasks, and a claim that waits wakes at the
        next due date. The task arrives at its due date.

        Args:
            queue: The queue.
            name: Names the schedule within its queue; 1 to 64 characters.
            value: The value of each task: a JSON value, or bytes.
            cron: A cron line of five fields, or a macro such as `@daily`; or give `every`.
            every: Seconds or a timedelta between two due dates, from 10 ms to a century; the first
                comes that long after this call. Or give `cron`.
            timezone: IANA name of the time zone that cron is read in. Default: UTC.
            missed: What happens to due dates that passed while nobody claimed. Default: one task,
                for the latest of them.

        Returns:
            The schedule with its next due date (UTC).

        Raises:
            InvalidRequestError: An argument is not allowed, or the rule can't work. Nothing was
                written.
            PayloadError: The value can't be stored.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.

        Example:
            >>> work.recur("reports", "daily", cron="0 8 * * *", timezone="Europe/Berlin")
        """
        return self._backend.set_schedule(
            checks.schedule_setting(
                queue, name, value, cron=cron, every=every, timezone=timezone, missed=missed
            )
        )

    def stop_recurring(self, queue: str, name: str) -> bool:
        """End a recurring schedule, for all. Tasks that it has inserted stay.

        Args:
            queue: The queue.
            name: The name that it was declared with.

        Returns:
            False if there was none.

        Raises:
            InvalidRequestError: A name is not allowed.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.
        """
        return self._backend.remove_schedule(checks.queue(queue), checks.schedule_name(name))

    def recurring(self, *queues: str) -> list[TaskSchedule]:
        """List recurring schedules.

        Args:
            queues: Those of these queues. Default: of all.

        Returns:
            The schedules, by queue and name. Those that another version wrote, and this one can't
            read, are left out.

        Raises:
            InvalidRequestError: A name is not allowed.
            DatabaseUnreachableError: The database does not answer.
        """
        return self._backend.schedules(checks.queues(queues) if queues else ())

    # -- awaitable twins --------------------------------------------------------------------------

    async def recur_async(
        self, queue: str, name: str, value: object = None, **options: Unpack[RecurOptions]
    ) -> TaskSchedule:
        """Awaitable twin of `recur`."""
        return await in_own_thread(self.recur, queue, name, value, **options)

    async def stop_recurring_async(self, queue: str, name: str) -> bool:
        """Awaitable twin of `stop_recurring`."""
        return await in_own_thread(self.stop_recurring, queue, name)

    async def recurring_async(self, *queues: str) -> list[TaskSchedule]:
        """Awaitable twin of `recurring`."""
        return await in_own_thread(self.recurring, *queues)
