"""The posting face that the persistent and the in-memory bus share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Unpack, overload

from bus.subscribing import Subscribing
from queue_core.errors import InvalidPostError
from queue_core.model.config import BusConfig
from queue_core.model.due_date import due_date
from queue_core.model.keyed import Keep, OnConflict, Posted
from queue_core.model.posting import (
    Awaited,
    KeyedOptions,
    OnFailed,
    OrderFailure,
    Posting,
    PostOptions,
    SearchKey,
)
from queue_core.model.priority import Priority
from queue_core.runtime.awaitable import awaited
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection
from queue_core.runtime.shown import shown


class EventBus(Subscribing):
    """Subscribers and postings of one bus; `shared` as for `Subscriptions`."""

    def __init__(self, config: BusConfig, *, shared: bool) -> None:
        super().__init__(config.name, shared=shared)
        self.config = config

    @overload
    def post(
        self,
        event: object,
        *,
        key: str,
        connection: CallersConnection | None = None,
        **options: Unpack[PostOptions],
    ) -> Posted: ...

    @overload
    def post(
        self,
        event: object,
        *,
        key: str | None = None,
        connection: CallersConnection | None = None,
        **options: Unpack[PostOptions],
    ) -> int: ...

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
        order_key: str | None = None,
        order_failure: OrderFailure = "hold",
        key: str | None = None,
        keep: Keep = "living",
        on_conflict: OnConflict = "return",
        key_wait: float | None = None,
        after: Collection[Awaited] | None = None,
        on_failed: OnFailed = "cancel",
        group: int | None = None,
        max_run_seconds: float | None = None,
        priority: Priority = "normal",
        limit_key: str | None = None,
        connection: CallersConnection | None = None,
    ) -> int:
        """Post one event. Either the row is written or the call raises.

        Args:
            event: An instance of an event type, or a plain dict together with `event_name`. A plain
                dict arrives with JSON's types: tuples and sets as lists, dates and UUIDs as texts.
            event_name: The name to store it under. Default: that of its type.
            search_key1: A 64-bit integer, a text of 1 to 255 characters, or a UUID to find it by.
                Default: none.
            search_key2: Another one.
            user_token: A text for handlers, of at most 36 characters. Default: none.
            future_user_token: Another one.
            headers: A flat dict of texts for handlers. Default: none.
            at: An aware date before which it does not run; or give `delay`. A past date means now.
                Default: now.
            delay: Seconds or a timedelta from now, 0 or more; or give `at`.
            order_key: A text of 1 to 128 characters. Events of this bus that have the same one run
                one at a time, in the order in which they were posted. Default: none.
            order_failure: The effect on later events of the key if this one fails for good.
                "hold": they wait until it is retried or discarded; "skip": they go on. Only with
                `order_key`. Default: "hold".
            key: An idempotency key, a text of 1 to 255 characters that names the effect: of the
                posts of this queue with one key, one entry lives. Default: none.
            keep: The time for which the key is kept: while its entry is "waiting" (until it runs),
                while it is "living" (until its end), a timedelta after its end, or "forever".
                Only with `key`. Default: "living".
            on_conflict: The answer if another entry has the key: "return" its id, "raise",
                "replace" a waiting entry, "requeue" one that runs or has ended (it runs once more),
                or "debounce" (replace a waiting entry; a successor to a running one). Only with
                `key`. Default: "return".
            key_wait: Seconds to wait for a transaction that is open, and has taken the key. 0: none
                (on MariaDB and MySQL one). Default: 5 in your transaction; in one of the library
                as long as for any lock (half of `statement_timeout_seconds`).
            after: Ids of entries of this table that must have ended before it runs, or pairs of a
                queue's name and an idempotency key, for the entry that has the key now. They must
                exist, so that no cycle can be made. Default: those that a function given to
                `register_event` tells, else none.
            on_failed: Its fate if one of them fails, or is removed. "cancel": it goes to
                history as REMOVED; "run": it runs all the same; "hold": it waits until that one is
                retried, or until `release`. Default: "cancel".
            group: The id of a group (`open_group`), not sealed, of which it is a member. Default:
                none.
            max_run_seconds: A run that takes longer counts as failed, and its handler goes on, as
                for `subscribe`, whose limit this one replaces. Default: that limit.
            priority: "high" overtakes entries posted up to ten minutes before, "urgent" up to an
                hour. Only for an event that is due now. Default: "normal".
            limit_key: A text of 1 to 128 characters, such as a customer's id. Of this bus's events
                that have the same one, no more run at once than `limit(per_key=...)` says. Default:
                none.
            connection: A SQLAlchemy Connection or Session, Django's connection, or a raw psycopg,
                PyMySQL or sqlite3 connection. The event is part of its transaction: a commit
                delivers, a rollback does not. Default: the call commits before it returns.

        Returns:
            The record id; with a key a `Posted`, the id of the entry that has it.

        Raises:
            InvalidPostError: An argument can't be accepted; NaiveDateTimeError for a date without a
                time zone.
            EntryNotFoundError: An entry that `after` names does not exist.
            PayloadError: The event can't be stored.
            ConfigurationError: Its name belongs to another type.
            DuplicateKeyError: Another entry has the key, and `on_conflict` is "raise".
            KeyLockedError: Another transaction has taken the key, and was open for too long.
            GroupNotFoundError: The table has no such group.
            GroupSealedError: The group takes no further members.
            GroupLockedError: Another transaction has posted into the group, and was open for 5 s.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.
            sqlalchemy.exc.SQLAlchemyError: The driver's error for anything else.

        Example:
            >>> bus.post(OrderPlaced(41), search_key1=41, delay=30)
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
            order_key=order_key,
            order_failure=order_failure,
            key=key,
            keep=keep,
            on_conflict=on_conflict,
            key_wait=key_wait,
            after=after,
            on_failed=on_failed,
            group=group,
            max_run_seconds=max_run_seconds,
            priority=priority,
            limit_key=limit_key,
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
        """Post events in one transaction, all or none.

        Args:
            events: Events, or `Posting`s, which have names, keys and dates.
            connection: As for `post`.

        Returns:
            The record ids, in order: a `Posted` where a key was given.

        Raises:
            InvalidPostError: `events` can't be iterated, or one can't be accepted. Otherwise as
                `post`. What an iterable itself raises passes as it is, and nothing was written.
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

    @overload
    async def post_async(
        self,
        event: object,
        *,
        key: str,
        connection: AsyncCallersConnection | None = None,
        **options: Unpack[PostOptions],
    ) -> Posted: ...

    @overload
    async def post_async(
        self,
        event: object,
        *,
        key: str | None = None,
        connection: AsyncCallersConnection | None = None,
        **options: Unpack[PostOptions],
    ) -> int: ...

    async def post_async(
        self,
        event: object,
        *,
        connection: AsyncCallersConnection | None = None,
        **options: Unpack[KeyedOptions],
    ) -> int:
        """Awaitable twin of `post`, with the same options."""
        return await awaited(
            lambda inner: self.post(event, connection=inner, **options), connection
        )

    async def post_many_async(
        self, events: Iterable[object], *, connection: AsyncCallersConnection | None = None
    ) -> list[int]:
        """Awaitable twin of `post_many`."""
        return await awaited(lambda inner: self.post_many(events, connection=inner), connection)
