"""The subscription of handlers to a bus."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal, Protocol, TypeVar, Unpack, overload

from bus.subscriptions import OTHERS, Others, Subscriptions, subscriber_name
from bus.unsubscribed import log_event
from queue_core.model.after_rules import After
from queue_core.model.event_types import EventTypes
from queue_core.model.posting import Awaited
from queue_core.model.retry import RetryPolicy
from queue_core.model.validators import Validate
from queue_core.old_names import OldBusNames
from queue_core.running.annotations import check_annotation
from queue_core.running.subscriber import (
    AnyHandler,
    EntryContext,
    ExactlyOnceContext,
    Subscriber,
    SubscriberOptions,
)
from queue_core.runtime.arguments import not_allowed
from queue_core.storage.search_keys import UNSET, Unset

E = TypeVar("E")
H = TypeVar("H", bound=AnyHandler)
R = TypeVar("R")


class Subscribe(Protocol[E]):
    """A decorator of handlers of the event `E`."""

    @overload
    def __call__(self, handler: Callable[[E], R], /) -> Callable[[E], R]: ...
    @overload
    def __call__(
        self, handler: Callable[[E, EntryContext], R], /
    ) -> Callable[[E, EntryContext], R]: ...


class SubscribeExactlyOnce(Protocol[E]):
    """A decorator of exactly-once handlers of the event `E`."""

    def __call__(
        self, handler: Callable[[E, ExactlyOnceContext], R], /
    ) -> Callable[[E, ExactlyOnceContext], R]:
        """Subscribe it, and return it."""
        ...


class SubscribeByName(Protocol):
    """A decorator of handlers of a name; its events are plain dicts unless a type has the name."""

    def __call__(self, handler: H, /) -> H:
        """Subscribe it, and return it."""
        ...


class Subscribing(OldBusNames):
    """The subscribers of one bus; `shared` as for `Subscriptions`."""

    def __init__(self, bus_name: str, *, shared: bool) -> None:
        self._types = EventTypes()
        self._subscriptions = Subscriptions(bus_name, self._types, shared=shared)

    @overload
    def subscribe(
        self, event: type[E], *, exactly_once: Literal[True], **options: Unpack[SubscriberOptions]
    ) -> SubscribeExactlyOnce[E]: ...
    @overload
    def subscribe(
        self,
        event: type[E],
        *,
        exactly_once: Literal[False] = ...,
        **options: Unpack[SubscriberOptions],
    ) -> Subscribe[E]: ...
    @overload
    def subscribe(
        self, event: str, *, exactly_once: bool = ..., **options: Unpack[SubscriberOptions]
    ) -> SubscribeByName: ...
    @overload
    def subscribe(
        self,
        event: type[E],
        handler: Callable[[E, ExactlyOnceContext], object],
        *,
        exactly_once: Literal[True],
        **options: Unpack[SubscriberOptions],
    ) -> None: ...
    @overload
    def subscribe(
        self,
        event: type[E],
        handler: Callable[[E], object],
        *,
        exactly_once: Literal[False] = ...,
        **options: Unpack[SubscriberOptions],
    ) -> None: ...
    @overload
    def subscribe(
        self,
        event: type[E],
        handler: Callable[[E, EntryContext], object],
        *,
        exactly_once: bool = ...,
        **options: Unpack[SubscriberOptions],
    ) -> None: ...
    @overload
    def subscribe(
        self,
        event: str,
        handler: AnyHandler,
        *,
        exactly_once: bool = ...,
        **options: Unpack[SubscriberOptions],
    ) -> None: ...
    def subscribe(
        self,
        event: type | str,
        handler: AnyHandler | Unset = UNSET,
        *,
        name: str | None = None,
        serial: bool = False,
        exactly_once: bool = False,
        retry: RetryPolicy | None = None,
        max_run_seconds: float | None = None,
        success_on: Collection[type[Exception]] = (),
    ) -> object:
        """Subscribe a handler to events of a type and its subtypes, or of a name.

        Works while the bus runs.

        Args:
            event: A dataclass, an attrs class, a msgspec Struct or a pydantic model; or the name of
                plain dicts.
            handler: Called with the event, or with the event and an `EntryContext`; it may be
                `async def`. Default: the call returns a decorator.
            name: Tells subscribers apart in retries. Default: the module and qualified name of the
                handler.
            serial: One call at a time in this process. Default: False.
            exactly_once: The transaction of the handler (`ExactlyOnceContext.connection`) also
                records the outcome. Default: False.
            retry: The retry policy of this subscriber. Default: that of the configuration.
            max_run_seconds: A run that takes longer counts as failed. Its handler can't be stopped:
                it goes on, counts for no limit and no order key, and others start beside it. A
                time-out inside the handler ends it. Default: no limit.
            success_on: Types of exceptions that mean success, such as `(IntegrityError,)`: the
                effect is there already. `Exception` itself is refused. Default: none.

        Returns:
            Without `handler`, a decorator, which returns the handler; else None.

        Raises:
            ConfigurationError: The type, the name, the handler or an option can't work; or the
                handler's annotation excludes events of the type.

        Example:
            >>> @bus.subscribe(OrderPlaced)
            ... def confirm(order: OrderPlaced) -> None: ...
            >>> bus.subscribe(OrderPlaced, count, serial=True)
        """

        def decorate(handler: H) -> H:
            subscriber = Subscriber(
                name or subscriber_name(handler),
                handler,
                serial=serial,
                exactly_once=exactly_once,
                retry=retry,
                max_run_seconds=max_run_seconds,
                success_on=success_on,
            )
            if isinstance(event, type):
                check_annotation(handler, event, name=subscriber.name)
            self._add(event, subscriber)
            return handler

        if isinstance(handler, Unset):
            if not isinstance(event, type | str):  # a handler, after @bus.subscribe alone
                raise not_allowed(
                    "event", event, "a type or a name of events, as in @bus.subscribe(OrderPlaced)"
                )
            return decorate
        decorate(handler)
        return None

    def _add(self, event: type | str | Others, subscriber: Subscriber) -> None:
        self._subscriptions.add(event, subscriber)

    def subscribe_others(
        self,
        handler: AnyHandler | None = None,
        *,
        name: str | None = None,
        serial: bool = False,
        retry: RetryPolicy | None = None,
        max_run_seconds: float | None = None,
        success_on: Collection[type[Exception]] = (),
    ) -> None:
        """Give the events that have no subscriber a handler, those of unknown names as well.

        Else a node sets events of unknown names aside until one knows them, and the others end
        PROCESSED unseen. So a node of an older version takes the events of a newer one, unless
        another node is faster. Another call replaces the handler.

        Args:
            handler: As for `subscribe`; events of unknown names are plain dicts. Default: it logs
                an INFO `event_without_subscriber`, and succeeds.
            name: As for `subscribe`, as all others.
            serial: One call at a time in this process. Default: False.
            retry: The retry policy. Default: that of the configuration.
            max_run_seconds: As for `subscribe`. Default: no limit.
            success_on: Types of exceptions that mean success. Default: none.

        Raises:
            ConfigurationError: As for `subscribe`.

        Example:
            >>> bus.subscribe_others()
        """
        handler = log_event if handler is None else handler
        subscriber = Subscriber(
            name or subscriber_name(handler),
            handler,
            serial=serial,
            retry=retry,
            max_run_seconds=max_run_seconds,
            success_on=success_on,
        )
        self._add(OTHERS, subscriber)

    def unsubscribe(self, handler: AnyHandler) -> bool:
        """End all subscriptions of a handler.

        Events of its types then end PROCESSED without a subscriber, as long as nobody else
        subscribes.

        Args:
            handler: The function or object that was subscribed.

        Returns:
            False if it had no subscription.
        """
        return self._subscriptions.remove(handler)

    @overload
    def register_event(
        self,
        event_type: type[E],
        *,
        name: str | None = ...,
        validate: Callable[[E], object] | None = ...,
        after: Callable[[E], Collection[Awaited]] | None = ...,
    ) -> str: ...
    @overload
    def register_event(
        self,
        event_type: str,
        *,
        validate: Callable[[dict[str, Any]], object] | None = ...,
        after: Callable[[dict[str, Any]], Collection[Awaited]] | None = ...,
    ) -> str: ...
    def register_event(
        self,
        event_type: type | str,
        *,
        name: str | None = None,
        validate: Validate | None = None,
        after: After | None = None,
    ) -> str:
        """Make an event type known under a name, and say which of its events are valid.

        Events are stored under the name: give one to a class that shares its `__name__` with
        another, or that was renamed. Nodes that post and nodes that handle it must register the
        same name.

        Args:
            event_type: A dataclass, an attrs class, a msgspec Struct or a pydantic model; or the
                name of plain dicts.
            name: The name. Default: the class's `__name__`.
            validate: Called with each event of the type, and of its subtypes, when it is posted and
                before each run. The event is valid if the answer is true; an exception is the
                reason why it isn't. An event that isn't valid is not posted (`InvalidEventError`);
                an entry ends FAILED, and no handler is called. Default: as registered before, at
                first all are valid.
            after: Called with each event of the type, and of its subtypes, that is posted here
                without `after`: answers with the ids of the entries that it waits for. Default: as
                registered before, at first none.

        Returns:
            The name.

        Raises:
            ConfigurationError: Another type has the name, the type or the name can't be stored, or
                `validate` or `after` is no plain function.

        Example:
            >>> bus.register_event(billing.Order, name="BillingOrder")
            >>> bus.register_event(Payment, validate=lambda payment: payment.cents > 0)
        """
        if isinstance(event_type, str) and name is None:
            registered = self._types.register_name(event_type)
        else:
            registered = self._types.register(event_type, name)
        if validate is not None:
            self._types.validators.set_for_type(event_type, validate)
        if after is not None:
            self._types.after_rules.set_for_type(event_type, after)
        return registered
