"""The persistent event bus: what is posted is a row first, and reaches its subscribers after the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry
from sqlalchemy import URL, Engine

from bus.subscriptions import Subscriptions
from queue_core.clock import Clock
from queue_core.codec import Codec, EventTypes
from queue_core.config import BusConfig, Mode
from queue_core.engine import QueueEngine
from queue_core.entry import Posting
from queue_core.face import Face
from queue_core.handler import Handler
from queue_core.reads import Reads
from queue_core.retry import RetryPolicy
from queue_core.twin import Asynchronous, awaited

H = TypeVar("H", bound=Handler)


class PersistentBus(Face, Reads):
    """An event bus on a SQL database.

    `database` is a URL or a SQLAlchemy Engine; the bus opens connections of its own. An SQLite file gets its tables
    at once, another database must have them (`stickybus schema create`). Posting works before `start` too: until then
    this process is no node, and what it posts is run by any node of the bus.

    Raises ConfigurationError, DatabaseUnreachableError, or a SchemaError.
    """

    def __init__(
        self,
        database: str | URL | Engine,
        config: BusConfig | None = None,
        *,
        clock: Clock | None = None,
        metrics_registry: CollectorRegistry | None = None,
        codec: Codec | None = None,
    ) -> None:
        self.config = config or BusConfig()
        self.types = EventTypes()
        self._subscriptions = Subscriptions(
            self.config.name, self.types, shared=self.config.mode is Mode.POLLING
        )
        self.engine = QueueEngine(
            database,
            self.config,
            self._subscriptions,
            self.types,
            clock=clock,
            metrics_registry=metrics_registry,
            codec=codec,
        )
        Reads.__init__(self, self.engine, self.config.name)

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
        self._subscriptions.add(
            event,
            handler,
            name=name,
            serial=serial,
            exactly_once=exactly_once,
            retry=retry,
            max_run_seconds=max_run_seconds,
        )
        self.engine.lifecycle.look_at_parked()
        return handler

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

        Without `connection` it is committed when the call returns. With one (a SQLAlchemy Connection or Session, or
        a raw psycopg, PyMySQL or sqlite3 connection) it is part of that transaction: commit delivers, rollback does
        not. A plain dict needs `event_name`. Either the row is written or the call raises: InvalidPostError,
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
        return self.engine.poster.post(self.config.name, [posting], connection)[0]

    def post_many(self, events: Iterable[Any], *, connection: Any = None) -> list[int]:
        """Post events, or `Posting`s with names and keys of their own, in one transaction; all or none.

        Returns their ids in order; otherwise as `post`.
        """
        postings = [event if isinstance(event, Posting) else Posting(event=event) for event in events]
        return self.engine.poster.post(self.config.name, postings, connection)

    async def post_async(self, event: Any, *, connection: Asynchronous | None = None, **options: Any) -> int:
        """Awaitable twin of `post`, with the same options, for an AsyncSession or AsyncConnection."""
        return await awaited(lambda inner: self.post(event, connection=inner, **options), connection)

    async def post_many_async(
        self, events: Iterable[Any], *, connection: Asynchronous | None = None
    ) -> list[int]:
        """Awaitable twin of `post_many`."""
        return await awaited(lambda inner: self.post_many(events, connection=inner), connection)
