"""The notification service: named queues, each `service:queue`, on one pair of tables."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Sequence
from typing import Any, Self

from prometheus_client import CollectorRegistry
from sqlalchemy import URL, Engine

from notifications.queue import NotificationQueue
from notifications.schedules import Schedules
from queue_core.engine import QueueEngine
from queue_core.errors import InvalidPostError, NameTooLongError, QueueExistsError, QueueNotFoundError
from queue_core.model.codec import Codec
from queue_core.model.config import NotificationConfig, name_fault
from queue_core.model.event_types import EventTypes, is_event_type
from queue_core.model.retry import RetryPolicy
from queue_core.reading.history import History
from queue_core.running.subscriber import Handler, Subscriber
from queue_core.runtime.arguments import not_allowed, of_kind
from queue_core.runtime.clock import Clock
from queue_core.runtime.lock import Lock
from queue_core.runtime.shown import shown
from queue_core.service_life import Face


class NotificationService(Face):
    """Queues of notifications, delivered at their time. Arguments and errors as for `PersistentBus`."""

    def __init__(
        self,
        database: str | URL | Engine,
        config: NotificationConfig | None = None,
        *,
        clock: Clock | None = None,
        metrics_registry: CollectorRegistry | None = None,
        codec: Codec | None = None,
    ) -> None:
        self.config = NotificationConfig() if config is None else config
        of_kind(self.config, NotificationConfig, key="config")
        self.types = EventTypes()
        self._queues: dict[str, NotificationQueue] = {}
        self._lock = Lock()
        self.engine = QueueEngine(
            database,
            self.config,
            self,
            self.types,
            clock=clock,
            metrics_registry=metrics_registry,
            codec=codec,
        )
        self._schedules = Schedules(self.engine, self._started_names)
        self._history = History(self.engine.store, None)

    # -- queues -------------------------------------------------------------------------------------------------

    def create_queue(
        self,
        service_name: str,
        queue_name: str,
        handler: Handler,
        *,
        event_types: Iterable[type | str] = (),
        serial: bool = False,
        exactly_once: bool = False,
        retry: RetryPolicy | None = None,
        max_run_seconds: float | None = None,
    ) -> NotificationQueue:
        """Create the queue `service_name:queue_name` of this process with its handler; `start` it to get deliveries.

        `event_types` are the types (or names of plain dicts) that the handler takes; by default the type that its
        first parameter is annotated with, else all, as plain dicts. Other options as for `PersistentBus.subscribe`.
        Raises QueueExistsError; InvalidPostError or NameTooLongError for a name that can't be one.
        """
        for name in (service_name, queue_name):
            _check_name(name)
        subscriber = Subscriber(
            f"{service_name}:{queue_name}",
            handler,
            serial=serial,
            exactly_once=exactly_once,
            retry=retry,
            max_run_seconds=max_run_seconds,
        )
        if isinstance(event_types, str) or not isinstance(event_types, Iterable):
            raise not_allowed("event_types", event_types, "a collection of event types and names")
        types = tuple(event_types) or _annotated(handler)
        names = set[str]()
        for event_type in types:
            if isinstance(event_type, str):
                self.types.register_name(event_type)
                names.add(event_type)
            else:
                names.add(self.types.register(event_type))
        queue = NotificationQueue(
            service_name,
            queue_name,
            subscriber,
            accepts=frozenset(names) if types else None,
            engine=self.engine,
            schedules=self._schedules,
            changed=self._changed,
        )
        with self._lock:
            if queue.full_name in self._queues:
                raise QueueExistsError(
                    f"the queue {queue.full_name!r} exists already in this service. Nothing was changed. Get it with "
                    "get_queue, or delete it first.",
                    queue_name=queue.full_name,
                )
            self._queues[queue.full_name] = queue
        return queue

    def get_queue(self, service_name: str, queue_name: str) -> NotificationQueue:
        """The queue of this name. Raises QueueNotFoundError."""
        names: tuple[Any, ...] = (service_name, queue_name)
        full_name = ":".join(name if isinstance(name, str) else shown(name) for name in names)
        queue = self._queues.get(full_name)
        if queue is None:
            known = ", ".join(sorted(self._queues)) or "none"
            raise QueueNotFoundError(
                f"there is no queue {full_name!r} in this service, only: {known}.", queue_name=full_name
            )
        return queue

    def queues(self) -> list[NotificationQueue]:
        """All queues of this service, by name."""
        return [self._queues[name] for name in sorted(self._queues)]

    def delete_queue(self, service_name: str, queue_name: str) -> None:
        """Stop the queue and forget it here. Its notifications stay in the database, set aside when due.

        Raises QueueNotFoundError.
        """
        queue = self.get_queue(service_name, queue_name)
        queue.stop()
        with self._lock:
            self._queues.pop(queue.full_name, None)
        self._changed()

    def _started_names(self) -> list[str]:
        return [name for name, queue in list(self._queues.items()) if queue.started]

    def _changed(self) -> None:
        self.engine.lifecycle.parked.look_at_all()
        self._schedules.wake()

    # -- what the engine asks (queue_core.running.subscriber.Router) ---------------------------------------------------------

    def subscribers(self, queue_name: str, class_name: str) -> Sequence[Subscriber] | None:
        """The queue's handler, if it is started and takes such entries."""
        queue = self._queues.get(queue_name)
        if queue is None or not queue.started:
            return None
        accepts = queue.accepts
        if accepts is None or class_name in accepts or self._is_subtype(class_name, accepts):
            return (queue.subscriber,)
        return None

    def _is_subtype(self, class_name: str, accepted: frozenset[str]) -> bool:
        event_type = self.types.type_of(class_name)
        if event_type is None:
            return False
        return any(self.types.type_of(name) in event_type.__mro__ for name in accepted)

    def describe(self) -> dict[str, Any]:
        """What is served, for the node's row."""
        return {"queues": sorted(self._started_names()), "types": sorted(self.types.names())}

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Become a node, and start all queues created so far. Raises NodeNameTakenError, LifecycleError, ForkedError."""
        # First: a node that knows its queues not yet would set aside what is due on them.
        begun = [queue for queue in self.queues() if not queue.started]
        try:
            for queue in begun:
                queue.started = True
            super().start()
        except BaseException:
            for queue in begun:
                queue.started = False
            raise
        try:
            self._schedules.start()
        except BaseException:  # no thread more, mostly
            self.stop()
            raise
        return self

    def fire_due(self) -> None:
        """Fire the recurring schedules that are due now: what `start` does again and again, once (for the test kit)."""
        self._schedules.turn()

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Stop delivering; see `PersistentBus.stop`. Queues stay created, and start again with the service."""
        self._schedules.stop()
        ended = super().stop(timeout_seconds)
        for queue in self.queues():
            queue.started = False
        return ended


def _check_name(name: str) -> None:
    fault = name_fault(name)
    if fault is None and ":" not in name:
        return
    error = NameTooLongError if fault and "characters" in fault and name else InvalidPostError
    raise error(
        f"{shown(name)} can't be the name of a service or queue: allowed are {fault or 'no colons, which part the two'}.",
        key="queue_name",
        value=name,
    )


def _annotated(handler: Handler) -> tuple[type, ...]:
    """The event type in the annotation of a handler's first parameter, if it is one."""
    function = handler if hasattr(handler, "__annotations__") else type(handler).__call__
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):
        return ()
    hints.pop("return", None)
    first = next(iter(hints.values()), None)
    return (first,) if isinstance(first, type) and is_event_type(first) else ()
