"""Notifications of a queue, as its users schedule them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Unpack, overload

import msgspec

from queue_core.engine import QueueEngine
from queue_core.errors import InvalidPostError
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
from queue_core.queue_keys import QueueKeys
from queue_core.queue_reads import Reads
from queue_core.runtime.awaitable import awaited
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection
from queue_core.runtime.shown import shown


class Scheduling(Reads, QueueKeys):
    """The notifications of one queue."""

    def __init__(self, service_name: str, queue_name: str, *, engine: QueueEngine) -> None:
        self.service_name = service_name
        self.queue_name = queue_name
        self.full_name = f"{service_name}:{queue_name}"
        self._engine = engine
        Reads.__init__(self, engine, self.full_name)
        QueueKeys.__init__(self, engine, self.full_name)

    @overload
    def schedule(
        self,
        event: object,
        *,
        key: str,
        connection: CallersConnection | None = None,
        **options: Unpack[PostOptions],
    ) -> Posted: ...

    @overload
    def schedule(
        self,
        event: object,
        *,
        key: str | None = None,
        connection: CallersConnection | None = None,
        **options: Unpack[PostOptions],
    ) -> int: ...

    def schedule(
        self,
        event: object,
        *,
        at: datetime | None = None,
        delay: timedelta | float | None = None,
        event_name: str | None = None,
        search_key1: SearchKey | None = None,
        search_key2: SearchKey | None = None,
        user_token: str | None = None,
        future_user_token: str | None = None,
        headers: Mapping[str, str] | None = None,
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
        """Schedule a notification. Either the row is written or the call raises.

        Args:
            event: An instance of an event type, or a plain dict, as for `PersistentBus.post`.
            at: The aware date of its delivery; or give `delay`. A past date means now.
            delay: Seconds or a timedelta from now, 0 or more; or give `at`.
            event_name: The name to store it under. Default: that of its type; of a dict, the
                queue's name.
            search_key1: A key to find it by. Default: none.
            search_key2: Another one.
            user_token: A text for the handler, of at most 36 characters. Default: none.
            future_user_token: Another one.
            headers: A flat dict of texts for the handler. Default: none.
            order_key: A text of 1 to 128 characters. Notifications of this queue that have the same
                one run one at a time, in the order in which they were scheduled. Default: none.
            order_failure: As for `PersistentBus.post`. Default: "hold".
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
            after: As for `PersistentBus.post`. Default: as there.
            on_failed: As for `PersistentBus.post`. Default: "cancel".
            group: As for `PersistentBus.post`. Default: none.
            max_run_seconds: As for `PersistentBus.post`. Default: the limit of the queue.
            priority: As for `PersistentBus.post`. Default: "normal".
            limit_key: As for `PersistentBus.post`. Default: none.
            connection: As for `PersistentBus.post`: the notification is part of its transaction.

        Returns:
            The record id; with a key a `Posted`, the id of the notification that has it.

        Raises:
            InvalidPostError: An argument can't be accepted; NaiveDateTimeError for a date without a
                time zone.
            EntryNotFoundError: An entry that `after` names does not exist.
            PayloadError: The event can't be stored.
            DuplicateKeyError: Another entry has the key, and `on_conflict` is "raise".
            KeyLockedError: Another transaction has taken the key, and was open for too long.
            GroupNotFoundError: The table has no such group.
            GroupSealedError: The group takes no further members.
            GroupLockedError: Another transaction has posted into the group, and was open for 5 s.
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
            at=due_date(
                at,
                delay,
                queue_name=self.full_name,
                now=lambda: self._engine.store.now(connection),
            ),
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
        return self.schedule_many([posting], connection=connection)[0]

    def schedule_many(
        self, postings: Iterable[Posting], *, connection: CallersConnection | None = None
    ) -> list[int]:
        """Schedule notifications in one transaction, all or none.

        Args:
            postings: The notifications, each with its date in `at`; None: now.
            connection: As for `schedule`.

        Returns:
            The record ids, in order: a `Posted` where a key was given.

        Raises:
            InvalidPostError: One of them is no `Posting`, or can't be accepted. Otherwise as
                `schedule`. What an iterable itself raises passes as it is, and nothing was written.
        """
        if not isinstance(postings, Iterable):
            raise self._no_posting(postings)
        named = [self._named(posting) for posting in postings]
        return self._engine.poster.post(self.full_name, named, connection)

    def _named(self, posting: Posting) -> Posting:
        if not isinstance(posting, Posting):
            raise self._no_posting(posting)
        if posting.event_name is None and isinstance(posting.event, dict):
            return msgspec.structs.replace(posting, event_name=self.queue_name)
        return posting

    def _no_posting(self, given: object) -> InvalidPostError:
        return InvalidPostError(
            f"{self.full_name}: postings: {shown(given)} is neither a Posting nor a collection of "
            "them. Nothing was written.",
            queue_name=self.full_name,
            key="postings",
        )

    @overload
    async def schedule_async(
        self,
        event: object,
        *,
        key: str,
        connection: AsyncCallersConnection | None = None,
        **options: Unpack[PostOptions],
    ) -> Posted: ...

    @overload
    async def schedule_async(
        self,
        event: object,
        *,
        key: str | None = None,
        connection: AsyncCallersConnection | None = None,
        **options: Unpack[PostOptions],
    ) -> int: ...

    async def schedule_async(
        self,
        event: object,
        *,
        connection: AsyncCallersConnection | None = None,
        **options: Unpack[KeyedOptions],
    ) -> int:
        """Awaitable twin of `schedule`, with the same options."""
        return await awaited(
            lambda inner: self.schedule(event, connection=inner, **options), connection
        )

    async def schedule_many_async(
        self, postings: Iterable[Posting], *, connection: AsyncCallersConnection | None = None
    ) -> list[int]:
        """Awaitable twin of `schedule_many`."""
        return await awaited(
            lambda inner: self.schedule_many(postings, connection=inner), connection
        )
