"""The queues of a notification service, as its process finds them."""

from __future__ import annotations

from notifications.queue import NotificationQueue
from notifications.recurring_schedules import RecurringSchedules
from notifications.served_queues import ServedQueues
from queue_core.engine import QueueEngine
from queue_core.errors import QueueNotFoundError
from queue_core.model.event_types import EventTypes
from queue_core.runtime.lock import Lock
from queue_core.runtime.shown import shown


class Queues:
    """The queues of one service, by name."""

    _engine: QueueEngine
    _schedules: RecurringSchedules

    def __init__(self) -> None:
        self._types = EventTypes()
        self._queues: dict[str, NotificationQueue] = {}
        self._served = ServedQueues(self._queues, self._types)
        self._lock = Lock()
        self._starts = False
        """Whether queues start when they are created: the service is started."""

    def get_queue(self, service_name: str, queue_name: str | None = None) -> NotificationQueue:
        """Find a queue of this service by its name.

        Args:
            service_name: `service:queue`; or the service's name.
            queue_name: The queue's name, if it is not part of `service_name`.

        Returns:
            The queue.

        Raises:
            QueueNotFoundError: This process has not created it.
        """
        names: tuple[object, ...] = (
            (service_name,) if queue_name is None else (service_name, queue_name)
        )
        full_name = ":".join(name if isinstance(name, str) else shown(name) for name in names)
        queue = self._queues.get(full_name)
        if queue is None:
            known = ", ".join(sorted(self._queues)) or "none"
            raise QueueNotFoundError(
                f"there is no queue {full_name!r} in this service, only: {known}.",
                queue_name=full_name,
            )
        return queue

    def queues(self) -> list[NotificationQueue]:
        """List the queues that this process has created.

        Returns:
            The queues, by name.
        """
        return [self._queues[name] for name in sorted(self._queues)]

    def delete_queue(self, service_name: str, queue_name: str | None = None) -> None:
        """Stop a queue and forget it here. Its notifications stay; they are set aside when due.

        Args:
            service_name: As for `get_queue`.
            queue_name: As for `get_queue`.

        Raises:
            QueueNotFoundError: This process has not created it.
        """
        queue = self.get_queue(service_name, queue_name)
        queue.stop()
        with self._lock:
            self._queues.pop(queue.full_name, None)
            self._types.validators.set_for_queue(queue.full_name, None)
        self._changed()

    def _changed(self) -> None:
        self._engine.parked.look_at_all()
        self._schedules.wake()
