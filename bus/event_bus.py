"""What the persistent and the in-memory bus do alike: how one subscribes and posts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, TypeVar, Unpack, cast, overload

from bus.subscriptions import Subscriptions, subscriber_name
from queue_core.errors import InvalidPostError
from queue_core.model.config import BusConfig
from queue_core.model.due_date import due_date
from queue_core.model.entry import Posting, PostOptions, SearchKey
from queue_core.model.event_types import EventTypes
from queue_core.model.retry import RetryPolicy
from queue_core.running.annotations import check_annotation
from queue_core.running.subscriber import (
    AnyHandler,
    EntryContext,
    ExactlyOnceContext,
    Subscriber,
    SubscriberOptions,
)
from queue_core.runtime.awaitable import awaited
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection
from queue_core.runtime.deprecation import deprecated
from queue_core.runtime.shown import shown
from queue_core.storage.rows import UNSET, Unset

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
    """A decorator of handlers of a name, whose events are plain dicts unless a type has the name."""

    def __call__(self, handler: H, /) -> H:
        """Subscribe it, and return it."""
        ...


class EventBus:
    """Subscribers and postings of one bus; `shared` as for `Subscriptions`."""

    def __init__(self, config: BusConfig, *, shared: bool) -> None:
        self.config = config
        self._types = EventTypes()
        self._subscriptions = Subscriptions(config.name, self._types, shared=shared)

    # -- subscribe ----------------------------------------------------------------------------------------------

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
    ) -> object:
        """Subscribe a handler to events of a type, and of its subtypes, or to events of a name.

        Without `handler` it decorates one. Works while the bus runs.

        Args:
            event: A dataclass, an attrs class, a msgspec Struct or a pydantic model; or the name of plain dicts.
            handler: Called with the event, or with the event and an `EntryContext`; it may be `async def`.
            name: Tells subscribers apart in retries. Default: the handler's module and qualified name.
            serial: One call at a time in this process.
            exactly_once: The handler's transaction (`ExactlyOnceContext.connection`) also records the outcome.
            retry: A policy of its own. Default: that of the configuration.
            max_run_seconds: A run that takes longer counts as failed, though the handler can't be stopped.

        Raises:
            ConfigurationError: A type, a name or a handler that can't work; or the handler's annotation excludes
                events of the type.

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
            )
            if isinstance(event, type):
                check_annotation(handler, event, name=subscriber.name)
            self._add(event, subscriber)
            return handler

        if isinstance(handler, Unset):
            return decorate
        decorate(handler)
        return None

    def register(
        self,
        event: type | str,
        handler: H,
        *,
        exactly_once: bool = False,
        **options: Unpack[SubscriberOptions],
    ) -> H:
        """Deprecated: `subscribe` does it."""
        deprecated("register", "subscribe(event, handler)")
        # The overloads tie the event's type to the handler's, which the old signature did not.
        decorate: SubscribeByName = cast("Any", self.subscribe)(
            event, exactly_once=exactly_once, **options
        )
        return decorate(handler)

    def _add(self, event: type | str, subscriber: Subscriber) -> None:
        self._subscriptions.add(event, subscriber)

    def unsubscribe(self, handler: AnyHandler) -> bool:
        """End all subscriptions of `handler`; False if it had none.

        Events of its types then end PROCESSED without a subscriber, as long as nobody else
        subscribes.
        """
        return self._subscriptions.remove(handler)

    def unregister(self, handler: AnyHandler) -> bool:
        """Deprecated: `unsubscribe` does it."""
        deprecated("unregister", "unsubscribe")
        return self.unsubscribe(handler)

    def register_event(self, event_type: type, *, name: str | None = None) -> str:
        """Make an event type known under a name, and return the name.

        Events are stored under the name: give one to a class that shares its `__name__` with
        another, or that was renamed. Nodes that post and nodes that handle it must register the
        same name.

        Args:
            event_type: A dataclass, an attrs class, a msgspec Struct or a pydantic model.
            name: Default: the class's `__name__`.

        Raises:
            ConfigurationError: Another type has the name, or the type or the name can't be stored.

        Example:
            >>> bus.register_event(billing.Order, name="BillingOrder")
        """
        return self._types.register(event_type, name)

    # -- post ---------------------------------------------------------------------------------------------------

    def post(
        self,
        event: object,
        *,
        event_name: str | None = None,
        search_key1: SearchKey | None = None,
        search_key2: SearchKey | None = None,
        user_token: str | None = None,
        future_user_token: str | None = None,
        headers: Mapping[str, str] | None = None,
        at: datetime | None = None,
        delay: timedelta | float | None = None,
        connection: CallersConnection | None = None,
    ) -> int:
        """Post one event and return its record id. Either the row is written or the call raises.

        Args:
            event: An instance of an event type, or a plain dict together with `event_name`.
            event_name: The name to store it under. Default: that of its type.
            search_key1: A 64-bit integer, a text of 1 to 255 characters or a UUID to find it by.
            search_key2: Another one.
            user_token: A text of the caller's, which handlers see.
            future_user_token: Another one.
            headers: A flat dict of texts, which handlers see.
            at: An aware date before which it does not run. Default: it runs now. A past date means now.
            delay: Seconds or a timedelta from now; not together with `at`.
            connection: A SQLAlchemy Connection or Session, Django's connection, or a raw psycopg, PyMySQL or sqlite3
                connection. The event is part of its transaction: commit delivers, rollback does not. Without
                one it is committed when the call returns.

        Raises:
            InvalidPostError: An argument can't be accepted; NaiveDateTimeError for a date without a time zone.
            PayloadError: The event can't be stored.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.
            sqlalchemy.exc.SQLAlchemyError: The driver's error for anything else.
        """
        posting = Posting(
            event=event,
            event_name=event_name,
            search_key1=search_key1,
            search_key2=search_key2,
            user_token=user_token,
            future_user_token=future_user_token,
            headers=headers,
            at=None if at is None and delay is None else self._due_date(at, delay, connection),
        )
        return self._post([posting], connection)[0]

    def _due_date(
        self,
        at: datetime | None,
        delay: timedelta | float | None,
        connection: CallersConnection | None,
    ) -> datetime:
        return due_date(at, delay, queue_name=self.config.name, now=lambda: self._now(connection))

    def post_many(
        self, events: Iterable[object], *, connection: CallersConnection | None = None
    ) -> list[int]:
        """Post events, or `Posting`s with names and keys of their own, in one transaction; all or none.

        Returns their ids in order; otherwise as `post`.
        """
        if not isinstance(events, Iterable):
            raise InvalidPostError(
                f"events={shown(events)} is no collection of events. Nothing was written.",
                key="events",
            )
        postings = [
            event if isinstance(event, Posting) else Posting(event=event) for event in events
        ]
        return self._post(postings, connection)

    def _post(self, postings: Sequence[Posting], connection: CallersConnection | None) -> list[int]:
        raise NotImplementedError

    def _now(self, connection: CallersConnection | None) -> datetime:
        raise NotImplementedError

    async def post_async(
        self,
        event: object,
        *,
        connection: AsyncCallersConnection | None = None,
        **options: Unpack[PostOptions],
    ) -> int:
        """Awaitable twin of `post`, with the same options, for an AsyncSession or AsyncConnection."""
        return await awaited(
            lambda inner: self.post(event, connection=inner, **options), connection
        )

    async def post_many_async(
        self, events: Iterable[object], *, connection: AsyncCallersConnection | None = None
    ) -> list[int]:
        """Awaitable twin of `post_many`."""
        return await awaited(lambda inner: self.post_many(events, connection=inner), connection)
