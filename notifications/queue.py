"""A notification queue: entries for one handler, each at its time.

`schedule` is in `scheduling`, changes of entries that have not started in `rescheduling`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self, Unpack

from notifications.recurring import Recurring
from notifications.recurring_schedules import RecurringSchedules
from queue_core.bulk_changes import BulkChanges
from queue_core.engine import QueueEngine
from queue_core.grouping import Grouping
from queue_core.limiting import Limiting
from queue_core.maintenance import ForgetOptions, Maintenance
from queue_core.model.event_types import EventTypes
from queue_core.model.posting import SearchKey
from queue_core.old_names import OldQueueNames
from queue_core.pausing import Pausing
from queue_core.reading.forgetting import Forgotten
from queue_core.reading.truncation import Progress
from queue_core.running.subscriber import Subscriber
from queue_core.runtime.deprecation import deprecated
from queue_core.storage.search_keys import UNSET, Unset


class NotificationQueue(Recurring, Pausing, Limiting, Grouping, BulkChanges, OldQueueNames):
    """One named queue of a `NotificationService`, which makes it (`create_queue`).

    Notifications can be scheduled whether the queue is started or not. They are delivered only
    while it is started, here or on another node.
    """

    def __init__(
        self,
        service_name: str,
        queue_name: str,
        subscriber: Subscriber,
        *,
        accepts: frozenset[str] | None,
        engine: QueueEngine,
        schedules: RecurringSchedules,
        changed: Callable[[], None],
    ) -> None:
        super().__init__(service_name, queue_name, engine=engine, schedules=schedules)
        Pausing.__init__(self, engine, self.full_name)
        Grouping.__init__(self, engine, self.full_name, dicts=queue_name)
        Limiting.__init__(self, engine, self.full_name)
        BulkChanges.__init__(self, engine, self.full_name)
        self._subscriber = subscriber
        self._accepts = accepts
        """Event names that its handler takes; None: all, as dicts unless their type is known."""
        self._started = False
        self._changed = changed

    def __repr__(self) -> str:
        return f"NotificationQueue({self.full_name!r}, started={self.started})"

    @property
    def started(self) -> bool:
        """Whether this process delivers its notifications, while its service runs."""
        return self._started

    @started.setter
    def started(self, started: bool) -> None:
        deprecated("setting started", "start() or stop()")
        self._started = started

    def _subscribers(self, class_name: str, types: EventTypes) -> tuple[Subscriber, ...] | None:
        """Its handler, if it is started and takes events of this name, or of a base of its type."""
        if not self._started:
            return None
        accepts = self._accepts
        if accepts is None or class_name in accepts or _is_subtype(class_name, accepts, types):
            return (self._subscriber,)
        return None

    def start(self) -> Self:
        """Let this node deliver the queue's notifications, those set aside meanwhile too.

        One that is started stays so.

        Returns:
            Itself.
        """
        self._started = True
        self._changed()
        return self

    def stop(self) -> None:
        """Deliver no more of this queue here: due entries are set aside until a node starts it."""
        self._started = False
        self._changed()

    def forget(
        self,
        *,
        search_key1: SearchKey | Unset = UNSET,
        search_key2: SearchKey | Unset = UNSET,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Forgotten:
        """Delete all of this queue that has the keys of one customer.

        Everything may run meanwhile. Waiting notifications and rows of history are deleted in
        batches of 2,000, each a transaction. Those that some node runs are listed and left: call
        again when they have ended. Notifications that are scheduled later than a second after the
        call began stay. Archives are not touched.

        Args:
            search_key1: Only entries with this key.
            search_key2: As `search_key1`. At least one is given; if both are, rows have both.
            dry_run: Delete nothing, and count the rows that would be deleted. Default: False.
            progress: Called after each batch with (rows deleted so far, rows to be deleted).

        Returns:
            The numbers of deleted and of remaining entries.

        Raises:
            InvalidPostError: No key is given, or one that can't be a key. Nothing was deleted.
            ConfigurationError: `progress` can't be called. Nothing was deleted.
            LifecycleError: Another call truncates, archives or forgets this history. Nothing was
                deleted.
            DatabaseUnreachableError: The database does not answer. Batches may be deleted already.
        """
        return Maintenance(self._engine, self.full_name).forget(
            search_key1=search_key1, search_key2=search_key2, dry_run=dry_run, progress=progress
        )

    async def forget_async(self, **options: Unpack[ForgetOptions]) -> Forgotten:
        """Awaitable twin of `forget`, in a thread, which calls `progress`."""
        return await asyncio.to_thread(lambda: self.forget(**options))


def _is_subtype(class_name: str, accepted: frozenset[str], types: EventTypes) -> bool:
    event_type = types.type_of(class_name)
    if event_type is None:
        return False
    return any(types.type_of(name) in event_type.__mro__ for name in accepted)
