"""The queues of a notification service, as its process creates them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Literal, Never, TypedDict, Unpack, overload

from notifications.queue import NotificationQueue
from notifications.queue_decorators import Decorate, DecorateExactlyOnce
from notifications.queue_name import checked_part, parts_of
from notifications.queues import Queues
from queue_core.errors import QueueExistsError
from queue_core.model.after_rules import After
from queue_core.model.codec import Codec
from queue_core.model.event_types import is_event_type
from queue_core.model.retry import RetryPolicy
from queue_core.model.validators import Validate
from queue_core.running.annotations import check_annotation, event_annotation
from queue_core.running.subscriber import AnyHandler, EntryContext, ExactlyOnceContext, Subscriber
from queue_core.runtime.arguments import not_allowed


class QueueOptions(TypedDict, total=False):
    """The way to run a queue's handler, besides `exactly_once`."""

    event_types: Iterable[type | str]
    serial: bool
    retry: RetryPolicy | None
    max_run_seconds: float | None
    codec: Codec | None
    success_on: Collection[type[Exception]]
    validate: Validate | None
    after: After | None


class CreatedQueues(Queues):
    """Creates queues, each with its handler."""

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
        codec: Codec | None = None,
        success_on: Collection[type[Exception]] = (),
        validate: Validate | None = None,
        after: After | None = None,
    ) -> NotificationQueue:
        """Create the queue `service_name:queue_name` of this process with its handler.

        It starts with the service: now, if that is started.

        Args:
            service_name: 1 to 64 characters, without a colon.
            queue_name: As `service_name`.
            handler: Called with the event, or with the event and an `EntryContext`; it may be
                `async def`.
            event_types: The types, and names of plain dicts, that the handler takes. Default: the
                type that its first parameter is annotated with; without one, all. Those of a class
                that this process has posted or registered come as that class, the others as plain
                dicts.
            serial: One call at a time in this process. Default: False.
            exactly_once: The transaction of the handler (`ExactlyOnceContext.connection`) also
                records the outcome. Default: False.
            retry: The retry policy of this queue. Default: that of the configuration.
            max_run_seconds: A run that takes longer counts as failed. Its handler can't be stopped:
                it goes on, counts for no limit and no order key, and others start beside it. A
                time-out inside the handler ends it. Default: no limit.
            codec: Writes the payloads of this queue, but for types with a codec. Default: that
                of the service.
            success_on: Types of exceptions that mean success, such as `(IntegrityError,)`: the
                effect is there already. `Exception` itself is refused. Default: none.
            validate: Called with each event when it is scheduled and before each run. The event is
                valid if the answer is true; an exception is the reason why it isn't. An event that
                isn't valid is not scheduled (`InvalidEventError`); an entry ends FAILED, and the
                handler is not called. Default: all are valid.
            after: Called with each event that this process schedules on the queue without `after`:
                answers with the ids of the entries that it waits for. Default: it waits for none.

        Returns:
            The queue.

        Raises:
            QueueExistsError: This service has the queue already.
            InvalidPostError: A name can't be one; NameTooLongError if it is too long.
            ConfigurationError: The handler, its annotation, an event type or an option can't work.
        """
        service_name, queue_name = checked_part(service_name), checked_part(queue_name)
        subscriber = Subscriber(
            f"{service_name}:{queue_name}",
            handler,
            serial=serial,
            exactly_once=exactly_once,
            retry=retry,
            max_run_seconds=max_run_seconds,
            success_on=success_on,
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
                names.add(self._types.register_name(event_type))
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
                    f"the queue {queue.full_name!r} exists already in this service. Nothing was "
                    "changed. Get it with get_queue, or delete it first.",
                    queue_name=queue.full_name,
                )
            self._engine.codecs.of_queue(queue.full_name, codec)
            self._types.validators.set_for_queue(queue.full_name, validate)
            self._types.after_rules.set_for_queue(queue.full_name, after)
            self._queues[queue.full_name] = queue
            starts = self._starts
        if starts:
            queue.start()
        return queue

    @overload
    def queue(
        self, full_name: str, *, exactly_once: Literal[True], **options: Unpack[QueueOptions]
    ) -> DecorateExactlyOnce: ...

    @overload
    def queue(
        self,
        full_name: str,
        *,
        exactly_once: Literal[False] = ...,
        **options: Unpack[QueueOptions],
    ) -> Decorate: ...

    def queue(
        self, full_name: str, *, exactly_once: bool = False, **options: Unpack[QueueOptions]
    ) -> object:
        """Decorate the handler of a queue, which is created as by `create_queue`.

        Args:
            full_name: `service:queue`.
            exactly_once: As for `create_queue`.
            options: The other options of `create_queue`.

        Returns:
            A decorator, which returns the handler. `get_queue` then has the queue.

        Raises:
            InvalidPostError: The name can't be that of a queue. The decorator raises as
                `create_queue`.

        Example:
            >>> @service.queue("shop:reminders")
            ... def remind(reminder: ReminderDue) -> None: ...
            >>> service.get_queue("shop:reminders").schedule(ReminderDue(41), delay=0.5)
        """
        service_name, queue_name = parts_of(full_name)
        create: Callable[..., NotificationQueue] = self.create_queue

        def decorate(handler: AnyHandler) -> AnyHandler:
            create(service_name, queue_name, handler, exactly_once=exactly_once, **options)
            return handler

        return decorate


def _annotated(handler: AnyHandler) -> tuple[type, ...]:
    """The event type in the annotation of a handler's first parameter, if it is one."""
    annotation = event_annotation(handler)
    return (annotation,) if isinstance(annotation, type) and is_event_type(annotation) else ()
