"""A notification queue: entries for one handler, each at its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Self, TypedDict, Unpack

import msgspec

from notifications.recurrence import MissedPolicy, parse
from notifications.schedules import Schedule, Schedules
from queue_core.engine import QueueEngine
from queue_core.errors import InvalidPostError
from queue_core.model.due_date import due_date
from queue_core.model.entry import Entry, Posting, PostOptions, SearchKey
from queue_core.model.event_types import EventTypes
from queue_core.queue_reads import Reads
from queue_core.reading.forgetting import Forgetting, Forgotten
from queue_core.reading.history import Progress
from queue_core.running.subscriber import Subscriber
from queue_core.runtime.awaitable import awaited
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection
from queue_core.runtime.clock import in_utc
from queue_core.runtime.shown import shown
from queue_core.service_life import ForgetOptions
from queue_core.storage.filter import Filter
from queue_core.storage.rows import UNSET, Keyless, Unset
from queue_core.storage.rows import name as check_name


class SearchKeys(TypedDict, total=False):
    """The search keys of a removal."""

    search_key1: SearchKey | Keyless | Unset
    search_key2: SearchKey | Keyless | Unset


class UpdateOptions(TypedDict, total=False):
    """The changes of an update."""

    search_key1: SearchKey | Unset | None
    search_key2: SearchKey | Unset | None
    event: object
    event_name: str | None
    at: datetime | None


class RecurOptions(TypedDict, total=False):
    """The options of a recurring schedule."""

    cron: str | None
    every: timedelta | float | None
    timezone: str
    missed: MissedPolicy
    event_name: str | None
    search_key1: SearchKey | None
    search_key2: SearchKey | None


class NotificationQueue(Reads):
    """One named queue of a `NotificationService`, which makes it (`create_queue`).

    Notifications can be scheduled whether the queue is started or not; they are delivered only
    while it is started here or on another node.
    """

    def __init__(
        self,
        service_name: str,
        queue_name: str,
        subscriber: Subscriber,
        *,
        accepts: frozenset[str] | None,
        engine: QueueEngine,
        schedules: Schedules,
        changed: Callable[[], None],
    ) -> None:
        self.service_name = service_name
        self.queue_name = queue_name
        self.full_name = f"{service_name}:{queue_name}"
        self._subscriber = subscriber
        self._accepts = accepts
        """Event names that its handler takes; None: all, as plain dicts unless their type is known."""
        self._started = False
        self._engine = engine
        self._schedules = schedules
        self._changed = changed
        super().__init__(engine, self.full_name)

    def __repr__(self) -> str:
        return f"NotificationQueue({self.full_name!r}, started={self.started})"

    @property
    def started(self) -> bool:
        """Whether this process delivers its notifications, while its service runs."""
        return self._started

    def _subscribers(self, class_name: str, types: EventTypes) -> tuple[Subscriber, ...] | None:
        """Its handler, if it is started and takes events of this name or of a type below one that it takes."""
        if not self._started:
            return None
        accepts = self._accepts
        if accepts is None or class_name in accepts or _is_subtype(class_name, accepts, types):
            return (self._subscriber,)
        return None

    def start(self) -> Self:
        """Let this node deliver the queue's notifications, those set aside meanwhile too."""
        self._started = True
        self._changed()
        return self

    def stop(self) -> None:
        """Deliver no more from this queue here: what is due is set aside until a node starts it."""
        self._started = False
        self._changed()

    # -- schedule -----------------------------------------------------------------------------------------------

    def schedule(
        self,
        event: object,
        *,
        at: datetime | None = None,
        delay: timedelta | float | None = None,
        event_name: str | None = None,
        search_key1: SearchKey | None = None,
        search_key2: SearchKey | None = None,
        user_token: str | None = None,
        future_user_token: str | None = None,
        headers: Mapping[str, str] | None = None,
        connection: CallersConnection | None = None,
    ) -> int:
        """Schedule a notification and return its record id.

        `at` is an aware date, `delay` a duration from now (a number is in seconds); exactly one is given. A date in
        the past fires at once. A plain dict is stored under `event_name`, by default the queue's name. `connection`
        and errors as for `PersistentBus.post`; NaiveDateTimeError for a date without a time zone.
        """
        posting = Posting(
            event=event,
            event_name=event_name,
            search_key1=search_key1,
            search_key2=search_key2,
            user_token=user_token,
            future_user_token=future_user_token,
            headers=headers,
            at=due_date(
                at, delay, queue_name=self.full_name, now=lambda: self._engine.store.now(connection)
            ),
        )
        return self.schedule_many([posting], connection=connection)[0]

    def schedule_many(
        self, postings: Iterable[Posting], *, connection: CallersConnection | None = None
    ) -> list[int]:
        """Schedule several in one transaction, all or none; each has its date in `at` (None: now).

        Their ids in order.
        """
        if not isinstance(postings, Iterable):
            raise self._no_posting(postings)
        named = [self._named(posting) for posting in postings]
        return self._engine.poster.post(self.full_name, named, connection)

    def _named(self, posting: Posting) -> Posting:
        if not isinstance(posting, Posting):
            raise self._no_posting(posting)
        if posting.event_name is None and isinstance(posting.event, dict):
            return msgspec.structs.replace(posting, event_name=self.queue_name)
        return posting

    def _no_posting(self, given: object) -> InvalidPostError:
        return InvalidPostError(
            f"{self.full_name}: postings: {shown(given)} is no Posting, nor a collection of them. Nothing was written.",
            queue_name=self.full_name,
            key="postings",
        )

    async def schedule_async(
        self,
        event: object,
        *,
        connection: AsyncCallersConnection | None = None,
        **options: Unpack[PostOptions],
    ) -> int:
        """Awaitable twin of `schedule`, with the same options."""
        return await awaited(
            lambda inner: self.schedule(event, connection=inner, **options), connection
        )

    async def schedule_many_async(
        self, postings: Iterable[Posting], *, connection: AsyncCallersConnection | None = None
    ) -> list[int]:
        """Awaitable twin of `schedule_many`."""
        return await awaited(
            lambda inner: self.schedule_many(postings, connection=inner), connection
        )

    # -- change -------------------------------------------------------------------------------------------------

    def update(
        self,
        record_id: int,
        *,
        event: object = None,
        event_name: str | None = None,
        search_key1: SearchKey | Unset | None = UNSET,
        search_key2: SearchKey | Unset | None = UNSET,
        at: datetime | None = None,
        connection: CallersConnection | None = None,
    ) -> Entry:
        """Change the payload, keys or date of a notification that has not started; what isn't given stays.

        Returns the entry as it is then. Raises EntryNotFoundError, or EntryNotChangeableError if it
        runs or has ended.
        """
        store = self._engine.store
        values: dict[str, Any] = {}
        if event is not None:
            named = self._named(Posting(event=event, event_name=event_name))
            values |= store.rows.payload(named)
        keys = store.rows.keys(self.full_name, search_key1=search_key1, search_key2=search_key2)
        if at is not None:
            values["effective_date"] = in_utc(at, key="at")
        entry = self._entries.update(record_id, values, keys, connection=connection)
        if at is not None:
            self._engine.poster.rescheduled(entry.effective_date, connection)
        return entry

    def remove(
        self,
        record_id: int | None = None,
        *,
        search_key1: SearchKey | Keyless | Unset = UNSET,
        search_key2: SearchKey | Keyless | Unset = UNSET,
        connection: CallersConnection | None = None,
    ) -> int:
        """Remove notifications that have not started, by id or by keys; they go to history as REMOVED.

        Returns how many. By id it raises EntryNotFoundError or EntryNotChangeableError; by keys it
        takes those that match (KEYLESS: without this key; None is refused) and leaves alone what
        runs.
        """
        wanted = Filter(search_key1=search_key1, search_key2=search_key2)
        return self._entries.remove(record_id, wanted, connection=connection)

    def forget(
        self,
        *,
        search_key1: SearchKey | Unset = UNSET,
        search_key2: SearchKey | Unset = UNSET,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Forgotten:
        """Delete all of this queue that has the keys of one customer; otherwise as `NotificationService.forget`."""
        return Forgetting(self._engine.store, self.full_name).forget(
            search_key1=search_key1, search_key2=search_key2, dry_run=dry_run, progress=progress
        )

    async def forget_async(self, **options: Unpack[ForgetOptions]) -> Forgotten:
        """Awaitable twin of `forget`; `progress` is called in a thread."""
        return await asyncio.to_thread(lambda: self.forget(**options))

    async def update_async(
        self,
        record_id: int,
        *,
        connection: AsyncCallersConnection | None = None,
        **changes: Unpack[UpdateOptions],
    ) -> Entry:
        """Awaitable twin of `update`, with the same changes."""
        return await awaited(
            lambda inner: self.update(record_id, connection=inner, **changes), connection
        )

    async def remove_async(
        self,
        record_id: int | None = None,
        *,
        connection: AsyncCallersConnection | None = None,
        **keys: Unpack[SearchKeys],
    ) -> int:
        """Awaitable twin of `remove`, with the same keys."""
        return await awaited(
            lambda inner: self.remove(record_id, connection=inner, **keys), connection
        )

    # -- recur --------------------------------------------------------------------------------------------------

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
    ) -> Schedule:
        """Fire `event` again and again: at the times of a cron line, or `every` so often (seconds or a timedelta).

        Once per due time in the whole cluster: every node may declare the schedule at its start.
        The same `name` with another rule or payload changes it. Cron times are read in `timezone`
        (an IANA name). `missed` says what happens to due times that passed while no node ran.
        Raises InvalidPostError for a name or a rule that can't work.
        """
        store = self._engine.store
        check_name(name, "name", queue_name=self.full_name)
        recurrence = parse(cron, every, timezone, start=store.now(), missed=missed)
        posting = Posting(
            event=event, event_name=event_name, search_key1=search_key1, search_key2=search_key2
        )
        return self._schedules.put(self.full_name, name, recurrence, self._named(posting))

    def stop_recurring(self, name: str) -> bool:
        """End a recurring schedule, for all nodes; what it has fired stays.

        False if there was none.
        """
        check_name(name, "name", queue_name=self.full_name)
        return self._schedules.remove(self.full_name, name)

    def recurring(self) -> list[Schedule]:
        """The recurring schedules of this queue, by name."""
        return self._schedules.of(self.full_name)

    async def recur_async(
        self, name: str, event: object, **options: Unpack[RecurOptions]
    ) -> Schedule:
        """Awaitable twin of `recur`, with the same options, in a thread."""
        return await asyncio.to_thread(lambda: self.recur(name, event, **options))

    async def stop_recurring_async(self, name: str) -> bool:
        """Awaitable twin of `stop_recurring`, in a thread."""
        return await asyncio.to_thread(self.stop_recurring, name)

    async def recurring_async(self) -> list[Schedule]:
        """Awaitable twin of `recurring`, in a thread."""
        return await asyncio.to_thread(self.recurring)


def _is_subtype(class_name: str, accepted: frozenset[str], types: EventTypes) -> bool:
    event_type = types.type_of(class_name)
    if event_type is None:
        return False
    return any(types.type_of(name) in event_type.__mro__ for name in accepted)
