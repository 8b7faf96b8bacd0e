"""The started queues of a notification service, as the engine asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from notifications.queue import NotificationQueue
from queue_core.model.event_types import EventTypes
from queue_core.running.subscriber import Subscriber


class ServedQueues:
    """A `running.subscriber.Router` over the queues of one service, which adds and removes them."""

    def __init__(self, queues: Mapping[str, NotificationQueue], types: EventTypes) -> None:
        self._queues = queues
        self._types = types

    def names(self) -> list[str]:
        """The queues that are started here."""
        return [name for name, queue in list(self._queues.items()) if queue.started]

    def subscribers(self, queue_name: str, class_name: str) -> Sequence[Subscriber] | None:
        """The queue's handler, if it is started and takes such entries."""
        queue = self._queues.get(queue_name)
        return None if queue is None else queue._subscribers(class_name, self._types)

    def describe(self) -> dict[str, Any]:
        """The served queues, for the node's row."""
        return {"queues": sorted(self.names()), "types": sorted(self._types.names())}
