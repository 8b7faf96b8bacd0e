"""The persistent event bus: what is posted is a row first, and reaches its subscribers after the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from prometheus_client import CollectorRegistry
from sqlalchemy import URL, Engine

from bus.subscriptions import Subscriptions
from queue_core.clock import Clock
from queue_core.codec import Codec, EventTypes
from queue_core.config import BusConfig, Mode
from queue_core.engine import QueueEngine
from queue_core.entries import Entries
from queue_core.entry import Entry, Posting, State
from queue_core.handler import Handler
from queue_core.history import History, Progress
from queue_core.retry import RetryPolicy
from queue_core.store import UNSET, Unset
from queue_core.twin import Asynchronous, awaited

H = TypeVar("H", bound=Handler)


class PersistentBus:
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
        self._entries = Entries(self.engine.store, self.config.name)
        self._history = History(self.engine.store, self.config.name)

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Become a node and deliver. Raises NodeNameTakenError, LifecycleError, ForkedError."""
        self.engine.lifecycle.start()
        return self

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Stop delivering: running handlers finish, what has not started is given back; may be started again.

        False if handlers still ran after `timeout_seconds` (default: `shutdown_timeout_seconds`).
        """
        return self.engine.lifecycle.stop(timeout_seconds)

    def close(self) -> None:
        """Stop, and close the bus's own connections."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
        records the entry's outcome. `retry`: its own policy. `max_run_seconds`: past it the entry is taken from the
        handler and queued anew. `name` (default: module and qualified name) tells subscribers apart in retries.
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

    def on_failed(self, hook: Callable[[Entry, str], None]) -> Callable[[Entry, str], None]:
        """Decorate a function that is called with (entry, last error) after an entry has ended FAILED."""
        return self.engine.on_failed(hook)

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

    # -- read ---------------------------------------------------------------------------------------------------

    def find(
        self,
        *,
        search_key1: int | Unset | None = UNSET,
        search_key2: int | Unset | None = UNSET,
        states: Iterable[State | str] | None = None,
        record_ids: Iterable[int] | None = None,
        effective_before: datetime | None = None,
        limit: int | None = None,
        connection: Any = None,
    ) -> list[Entry]:
        """Live entries of this bus that match, by ascending id, as `connection`'s transaction sees them.

        A key that is not given matches all; None matches entries without that key.
        """
        return self._entries.find(
            search_key1=search_key1,
            search_key2=search_key2,
            states=states,
            record_ids=record_ids,
            effective_before=effective_before,
            limit=limit,
            connection=connection,
        )

    def history(
        self,
        *,
        search_key1: int | Unset | None = UNSET,
        search_key2: int | Unset | None = UNSET,
        states: Iterable[State | str] | None = None,
        record_ids: Iterable[int] | None = None,
        finished_before: datetime | None = None,
        finished_since: datetime | None = None,
        limit: int | None = None,
        connection: Any = None,
    ) -> list[Entry]:
        """Entries of this bus that have ended and match, by ascending id; see `find`."""
        return self._history.find(
            search_key1=search_key1,
            search_key2=search_key2,
            states=states,
            record_ids=record_ids,
            finished_before=finished_before,
            finished_since=finished_since,
            limit=limit,
            connection=connection,
        )

    def ready_count(self, *, owner: str | None = None, connection: Any = None) -> int:
        """How many entries of this bus are AVAILABLE and due; `owner`: only those kept for that node."""
        return self._entries.ready_count(owner=owner, connection=connection)

    async def find_async(self, *, connection: Asynchronous | None = None, **filters: Any) -> list[Entry]:
        """Awaitable twin of `find`."""
        return await awaited(lambda inner: self.find(connection=inner, **filters), connection)

    async def history_async(self, *, connection: Asynchronous | None = None, **filters: Any) -> list[Entry]:
        """Awaitable twin of `history`."""
        return await awaited(lambda inner: self.history(connection=inner, **filters), connection)

    async def ready_count_async(
        self, *, owner: str | None = None, connection: Asynchronous | None = None
    ) -> int:
        """Awaitable twin of `ready_count`."""
        return await awaited(lambda inner: self.ready_count(owner=owner, connection=inner), connection)

    # -- history ------------------------------------------------------------------------------------------------

    def truncate_history(
        self,
        *,
        before: datetime | None = None,
        states: Iterable[State | str] | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Delete the table's history while the bus runs, and return the number of rows; see `History.truncate`."""
        return self._history.truncate(before=before, states=states, progress=progress)

    def retry(self, record_id: int) -> int:
        """Post an entry that ended FAILED (or REMOVED) again, and return the new id; see `History.retry`."""
        new_id = self._history.retry(record_id)
        self.engine.lifecycle.rescheduled(self.engine.store.clock.now(), None)
        return new_id
