"""Recurring notifications of a queue, as its users declare them."""

from __future__ import annotations

from datetime import timedelta
from typing import TypedDict, Unpack

from notifications.recurring_schedules import RecurringSchedules, Schedule
from notifications.rescheduling import Rescheduling
from queue_core.engine import QueueEngine
from queue_core.model.missed_policy import MissedPolicy
from queue_core.model.posting import Posting, SearchKey
from queue_core.model.recurrence import parse
from queue_core.runtime.awaitable import awaited
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection
from queue_core.storage.arguments import storable_name


class RecurOptions(TypedDict, total=False):
    """The options of a recurring schedule, besides its connection."""

    cron: str | None
    every: timedelta | float | None
    timezone: str
    missed: MissedPolicy
    event_name: str | None
    search_key1: SearchKey | None
    search_key2: SearchKey | None


class Recurring(Rescheduling):
    """The recurring schedules of one queue."""

    def __init__(
        self,
        service_name: str,
        queue_name: str,
        *,
        engine: QueueEngine,
        schedules: RecurringSchedules,
    ) -> None:
        super().__init__(service_name, queue_name, engine=engine)
        self._schedules = schedules

    def recur(
        self,
        name: str,
        event: object,
        *,
        cron: str | None = None,
        every: timedelta | float | None = None,
        timezone: str = "UTC",
        missed: MissedPolicy = MissedPolicy.FIRE_ONCE,
        event_name: str | None = None,
        search_key1: SearchKey | None = None,
        search_key2: SearchKey | None = None,
        connection: CallersConnection | None = None,
    ) -> Schedule:
        """Fire an event again and again, once for each due date in the whole cluster.

        Every node may declare the schedule at its start: the same rule changes nothing. Another
        rule or payload under the same name replaces it, for all nodes. Another `missed` alone
        leaves it where it stands. With other dates it starts anew: a date of the old rule that is
        due but has not fired yet never fires.

        Args:
            name: Names the schedule within its queue.
            event: As for `schedule`; each firing gets this one.
            cron: A cron line of five fields, or a macro such as `@daily`; or give `every`.
            every: Seconds or a timedelta between two due dates, from 10 ms to a century; the first
                comes that long after this call. Or give `cron`.
            timezone: IANA name of the time zone that cron is read in. Default: UTC.
            missed: The treatment of dates that passed while no node ran. Default: one firing, for
                the latest of them.
            event_name: As for `schedule`.
            search_key1: As for `schedule`.
            search_key2: As for `schedule`.
            connection: As for `PersistentBus.post`: the declaration is part of its transaction.
                Nodes then learn of it by their next poll after the commit.

        Returns:
            The schedule with its next due date (UTC).

        Raises:
            InvalidPostError: The name, the rule or another argument can't be accepted.
            PayloadError: The event can't be stored.
            InvalidConnectionError: The connection can't be used here.
            sqlalchemy.exc.IntegrityError: Another node declares the same name at this moment; roll
                your transaction back. Only with `connection`.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.

        Example:
            >>> queue.recur("daily", Report(), cron="0 8 * * *", timezone="Europe/Berlin")
        """
        name = storable_name(name, "name", queue_name=self.full_name)
        start = self._engine.store.now(connection)
        recurrence = parse(cron, every, timezone, start=start, missed=missed)
        posting = Posting(
            event=event, event_name=event_name, search_key1=search_key1, search_key2=search_key2
        )
        named = self._named(posting)
        return self._schedules.put(self.full_name, name, recurrence, named, connection)

    def stop_recurring(self, name: str, *, connection: CallersConnection | None = None) -> bool:
        """End a recurring schedule, for all nodes. Notifications that it has fired stay.

        Args:
            name: The name that it was declared with.
            connection: As for `PersistentBus.post`: the end is part of its transaction. Nodes that
                find the schedule due wait until that has ended.

        Returns:
            False if there was none.

        Raises:
            InvalidPostError: The name can't be one.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.
        """
        name = storable_name(name, "name", queue_name=self.full_name)
        return self._schedules.remove(self.full_name, name, connection)

    def recurring(self, *, connection: CallersConnection | None = None) -> list[Schedule]:
        """List the recurring schedules of this queue.

        Args:
            connection: As for `PersistentBus.post`: they are read as its transaction sees them.

        Returns:
            The schedules, by name. Those that another version wrote, and this one can't read, are
            left out.

        Raises:
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: The database does not answer.
        """
        return self._schedules.of(self.full_name, connection)

    async def recur_async(
        self,
        name: str,
        event: object,
        *,
        connection: AsyncCallersConnection | None = None,
        **options: Unpack[RecurOptions],
    ) -> Schedule:
        """Awaitable twin of `recur`, with the same options."""
        return await awaited(
            lambda inner: self.recur(name, event, connection=inner, **options), connection
        )

    async def stop_recurring_async(
        self, name: str, *, connection: AsyncCallersConnection | None = None
    ) -> bool:
        """Awaitable twin of `stop_recurring`."""
        return await awaited(lambda inner: self.stop_recurring(name, connection=inner), connection)

    async def recurring_async(
        self, *, connection: AsyncCallersConnection | None = None
    ) -> list[Schedule]:
        """Awaitable twin of `recurring`."""
        return await awaited(lambda inner: self.recurring(connection=inner), connection)
