"""The notification service: named queues, each `service:queue`, on one pair of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, Never, Protocol, Self, TypedDict, TypeVar, Unpack, overload

from prometheus_client import CollectorRegistry
from sqlalchemy import URL, Engine

from notifications.queue import NotificationQueue
from notifications.schedules import Schedules
from notifications.served_queues import ServedQueues
from queue_core.engine import QueueEngine
from queue_core.errors import (
    InvalidPostError,
    NameTooLongError,
    QueueExistsError,
    QueueNotFoundError,
)
from queue_core.model.codec import Codec
from queue_core.model.config import NotificationConfig, name_fault
from queue_core.model.event_types import EventTypes, is_event_type
from queue_core.model.retry import RetryPolicy
from queue_core.reading.history import History
from queue_core.running.annotations import check_annotation, event_annotation
from queue_core.running.subscriber import AnyHandler, EntryContext, ExactlyOnceContext, Subscriber
from queue_core.runtime.arguments import not_allowed, of_kind
from queue_core.runtime.clock import Clock
from queue_core.runtime.lock import Lock
from queue_core.runtime.shown import shown
from queue_core.service_life import Face

N = TypeVar("N", bound=Callable[[Never], object] | Callable[[Never, EntryContext], object])
X = TypeVar("X", bound=Callable[[Never, ExactlyOnceContext], object])


class QueueOptions(TypedDict, total=False):
    """How a queue's handler is to be run, besides `exactly_once`."""

    event_types: Iterable[type | str]
    serial: bool
    retry: RetryPolicy | None
    max_run_seconds: float | None


class Decorate(Protocol):
    """A decorator of handlers."""

    def __call__(self, handler: N, /) -> N:
        """Create the queue, and return the handler."""
        ...


class DecorateExactlyOnce(Protocol):
    """A decorator of exactly-once handlers."""

    def __call__(self, handler: X, /) -> X:
        """Create the queue, and return the handler."""
        ...


class NotificationService(Face):
    """Queues of notifications, delivered at their time.

    Arguments and errors as for `PersistentBus`.
    """

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
        self._types = EventTypes()
        self._queues: dict[str, NotificationQueue] = {}
        self._served = ServedQueues(self._queues, self._types)
        self._lock = Lock()
        self._engine = QueueEngine(
            database,
            self.config,
            self._served,
            self._types,
            clock=clock,
            metrics_registry=metrics_registry,
            codec=codec,
        )
        self._schedules = Schedules(self._engine, self._served.names)
        self._history = History(self._engine.store, None)

    # -- queues -------------------------------------------------------------------------------------------------

    @overload
    def create_queue(
        self,
        service_name: str,
        queue_name: str,
        handler: Callable[[Never], object],
        *,
        exactly_once: Literal[False] = ...,
        **options: Unpack[QueueOptions],
    ) -> NotificationQueue: ...
    @overload
    def create_queue(
        self,
        service_name: str,
        queue_name: str,
        handler: Callable[[Never, EntryContext], object],
        *,
        exactly_once: bool = ...,
        **options: Unpack[QueueOptions],
    ) -> NotificationQueue: ...
    @overload
    def create_queue(
        self,
        service_name: str,
        queue_name: str,
        handler: Callable[[Never, ExactlyOnceContext], object],
        *,
        exactly_once: Literal[True],
        **options: Unpack[QueueOptions],
    ) -> NotificationQueue: ...
    def create_queue(
        self,
        service_name: str,
        queue_name: str,
        handler: AnyHandler,
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
        for event_type in types:
            if isinstance(event_type, type):
                check_annotation(handler, event_type, name=subscriber.name)
        names = set[str]()
        for event_type in types:
            if isinstance(event_type, str):
                self._types.register_name(event_type)
                names.add(event_type)
            else:
                names.add(self._types.register(event_type))
        queue = NotificationQueue(
            service_name,
            queue_name,
            subscriber,
            accepts=frozenset(names) if types else None,
            engine=self._engine,
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

    @overload
    def queue(
        self, full_name: str, *, exactly_once: Literal[True], **options: Unpack[QueueOptions]
    ) -> DecorateExactlyOnce: ...
    @overload
    def queue(
        self, full_name: str, *, exactly_once: Literal[False] = ..., **options: Unpack[QueueOptions]
    ) -> Decorate: ...
    def queue(
        self,
        full_name: str,
        *,
        event_types: Iterable[type | str] = (),
        serial: bool = False,
        exactly_once: bool = False,
        retry: RetryPolicy | None = None,
        max_run_seconds: float | None = None,
    ) -> object:
        """Decorate the handler of a queue, which is created as by `create_queue`; `get_queue` has it then.

        Args:
            full_name: `service:queue`.
            event_types: As for `create_queue`, as are the other options.
            serial: One call at a time in this process.
            exactly_once: The handler's transaction also records the outcome.
            retry: A policy of its own. Default: that of the configuration.
            max_run_seconds: A run that takes longer counts as failed.

        Raises:
            InvalidPostError: The name is none of a queue.

        Example:
            >>> @service.queue("shop:reminders")
            ... def remind(reminder: ReminderDue) -> None: ...
            >>> service.get_queue("shop:reminders").schedule(ReminderDue(41), delay=0.5)
        """
        service_name, queue_name = _parted(full_name)
        create: Callable[..., NotificationQueue] = self.create_queue

        def decorate(handler: AnyHandler) -> AnyHandler:
            create(
                service_name,
                queue_name,
                handler,
                event_types=event_types,
                serial=serial,
                exactly_once=exactly_once,
                retry=retry,
                max_run_seconds=max_run_seconds,
            )
            return handler

        return decorate

    def get_queue(self, service_name: str, queue_name: str | None = None) -> NotificationQueue:
        """The queue of this name, given as `service:queue` or as two names.

        Raises QueueNotFoundError.
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
        """All queues of this service, by name."""
        return [self._queues[name] for name in sorted(self._queues)]

    def delete_queue(self, service_name: str, queue_name: str) -> None:
        """Stop the queue and forget it here.

        Its notifications stay in the database, set aside when due.

        Raises QueueNotFoundError.
        """
        queue = self.get_queue(service_name, queue_name)
        queue.stop()
        with self._lock:
            self._queues.pop(queue.full_name, None)
        self._changed()

    def _changed(self) -> None:
        self._engine.lifecycle.parked.look_at_all()
        self._schedules.wake()

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Become a node, and start all queues created so far.

        Raises NodeNameTakenError, LifecycleError, ForkedError.
        """
        # First: a node that knows its queues not yet would set aside what is due on them.
        begun = [queue for queue in self.queues() if not queue.started]
        try:
            for queue in begun:
                queue._started = True
            super().start()
        except BaseException:
            for queue in begun:
                queue._started = False
            raise
        try:
            self._schedules.start()
        except BaseException:  # no thread more, mostly
            self.stop()
            raise
        return self

    def _fire_due(self) -> None:
        """Fire the recurring schedules that are due now: what `start` does again and again, once (for the test kit)."""
        self._schedules.turn()

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Stop delivering; see `PersistentBus.stop`.

        Queues stay created, and start again with the service.
        """
        self._schedules.stop()
        ended = super().stop(timeout_seconds)
        for queue in self.queues():
            queue._started = False
        return ended


def _parted(full_name: object) -> tuple[str, str]:
    """The service's and the queue's name."""
    parts = full_name.split(":") if isinstance(full_name, str) else []
    if len(parts) != 2:  # noqa: PLR2004 -- as the names of both parts
        raise InvalidPostError(
            f"{shown(full_name)} can't be the name of a queue: allowed is service:queue, such as shop:reminders.",
            key="full_name",
            value=shown(full_name),
        )
    service_name, queue_name = parts
    return service_name, queue_name


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


def _annotated(handler: AnyHandler) -> tuple[type, ...]:
    """The event type in the annotation of a handler's first parameter, if it is one."""
    annotation = event_annotation(handler)
    return (annotation,) if isinstance(annotation, type) and is_event_type(annotation) else ()
