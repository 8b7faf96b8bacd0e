"""What the persistent and the in-memory bus do alike: how one subscribes and posts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from bus.subscriptions import Subscriptions, subscriber_name
from queue_core.errors import InvalidPostError
from queue_core.model.config import BusConfig
from queue_core.model.entry import Posting
from queue_core.model.event_types import EventTypes
from queue_core.model.retry import RetryPolicy
from queue_core.running.subscriber import Handler, Subscriber
from queue_core.runtime.awaitable import Asynchronous, awaited
from queue_core.runtime.shown import shown

H = TypeVar("H", bound=Handler)


class EventBus:
    """Subscribers and postings of one bus; `shared` as for `Subscriptions`."""

    def __init__(self, config: BusConfig, *, shared: bool) -> None:
        self.config = config
        self.types = EventTypes()
        self._subscriptions = Subscriptions(config.name, self.types, shared=shared)

    # -- subscribe ----------------------------------------------------------------------------------------------

    def subscribe(
        self,
        event: type | str,
        *,
        name: str | None = None,
        serial: bool = False,
        exactly_once: bool = False,
        retry: RetryPolicy | None = None,
        max_run_seconds: float | None = None,
    ) -> Callable[[H], H]:
        """Decorate a handler of events of a type (and its subtypes) or of a name.

        The handler is called with the event, or with the event and an `EntryContext`; it may be `async def`.
        `serial`: one call at a time in this process. `exactly_once`: its transaction (`context.connection`) also
        records the entry's outcome. `retry`: its own policy. `max_run_seconds`: past it the run counts
        as failed, though the handler can't be stopped. `name` (default: module and qualified name) tells subscribers apart in retries.
        """

        def decorate(handler: H) -> H:
            return self.register(
                event,
                handler,
                name=name,
                serial=serial,
                exactly_once=exactly_once,
                retry=retry,
                max_run_seconds=max_run_seconds,
            )

        return decorate

    def register(
        self,
        event: type | str,
        handler: H,
        *,
        name: str | None = None,
        serial: bool = False,
        exactly_once: bool = False,
        retry: RetryPolicy | None = None,
        max_run_seconds: float | None = None,
    ) -> H:
        """Subscribe `handler`; see `subscribe`. Works while the bus runs. Returns the handler."""
        subscriber = Subscriber(
            name or subscriber_name(handler),
            handler,
            serial=serial,
            exactly_once=exactly_once,
            retry=retry,
            max_run_seconds=max_run_seconds,
        )
        self._add(event, subscriber)
        return handler

    def _add(self, event: type | str, subscriber: Subscriber) -> None:
        self._subscriptions.add(event, subscriber)

    def unregister(self, handler: Handler) -> bool:
        """End all subscriptions of `handler`; False if it had none.

        Events of its types then end PROCESSED without a subscriber, as long as nobody else subscribes.
        """
        return self._subscriptions.remove(handler)

    # -- post ---------------------------------------------------------------------------------------------------

    def post(
        self,
        event: Any,
        *,
        event_name: str | None = None,
        search_key1: int | None = None,
        search_key2: int | None = None,
        user_token: str | None = None,
        future_user_token: str | None = None,
        headers: Mapping[str, str] | None = None,
        connection: Any = None,
    ) -> int:
        """Post one event and return its record id.

        Without `connection` it is committed when the call returns. With one (a SQLAlchemy Connection or Session,
        Django's connection, or a raw psycopg, PyMySQL or sqlite3 connection) it is part of that transaction: commit
        delivers, rollback does not. A plain dict needs `event_name`. Either the row is written or the call raises: InvalidPostError,
        PayloadError, InvalidConnectionError, DatabaseUnreachableError, or the driver's error through SQLAlchemy.
        """
        posting = Posting(
            event=event,
            event_name=event_name,
            search_key1=search_key1,
            search_key2=search_key2,
            user_token=user_token,
            future_user_token=future_user_token,
            headers=headers,
        )
        return self._post([posting], connection)[0]

    def post_many(self, events: Iterable[Any], *, connection: Any = None) -> list[int]:
        """Post events, or `Posting`s with names and keys of their own, in one transaction; all or none.

        Returns their ids in order; otherwise as `post`.
        """
        if not isinstance(events, Iterable):
            raise InvalidPostError(
                f"events={shown(events)} is no collection of events. Nothing was written.", key="events"
            )
        postings = [event if isinstance(event, Posting) else Posting(event=event) for event in events]
        return self._post(postings, connection)

    def _post(self, postings: Sequence[Posting], connection: Any) -> list[int]:
        raise NotImplementedError

    async def post_async(self, event: Any, *, connection: Asynchronous | None = None, **options: Any) -> int:
        """Awaitable twin of `post`, with the same options, for an AsyncSession or AsyncConnection."""
        return await awaited(lambda inner: self.post(event, connection=inner, **options), connection)

    async def post_many_async(
        self, events: Iterable[Any], *, connection: Asynchronous | None = None
    ) -> list[int]:
        """Awaitable twin of `post_many`."""
        return await awaited(lambda inner: self.post_many(events, connection=inner), connection)
