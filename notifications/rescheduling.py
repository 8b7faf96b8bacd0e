"""Notifications of a queue that have not started, as its users change them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack

from notifications.scheduling import Scheduling
from queue_core.model.due_date import due_date
from queue_core.model.entry import Entry
from queue_core.model.posting import Posting, SearchKey
from queue_core.runtime.awaitable import awaited
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection
from queue_core.storage.filter import Filter
from queue_core.storage.search_keys import UNSET, Keyless, Unset


class SearchKeys(TypedDict, total=False):
    """The search keys of a removal."""

    search_key1: SearchKey | Keyless | Unset
    search_key2: SearchKey | Keyless | Unset


class UpdateOptions(TypedDict, total=False):
    """The changes of an update."""

    search_key1: SearchKey | Unset | None
    search_key2: SearchKey | Unset | None
    event: object
    event_name: str | None
    at: datetime | None
    delay: timedelta | float | None


class Rescheduling(Scheduling):
    """Those of one queue."""

    def update(
        self,
        record_id: int,
        *,
        event: object = None,
        event_name: str | None = None,
        search_key1: SearchKey | Unset | None = UNSET,
        search_key2: SearchKey | Unset | None = UNSET,
        at: datetime | None = None,
        delay: timedelta | float | None = None,
        connection: CallersConnection | None = None,
    ) -> Entry:
        """Change a notification that has not started. Arguments that are not given change nothing.

        Args:
            record_id: Its id.
            event: Its new payload.
            event_name: As for `schedule`, of the new payload.
            search_key1: Its new key; None: no key.
            search_key2: As `search_key1`.
            at: Its new date, aware; also that of a retry. Or give `delay`.
            delay: Seconds or a timedelta from now, 0 or more, to its new date.
            connection: As for `PersistentBus.post`: the change is part of its transaction.

        Returns:
            The entry after the change.

        Raises:
            EntryNotFoundError: The queue has no such notification.
            EntryNotChangeableError: It runs already, or has ended. Nothing was changed.
            InvalidPostError: An argument can't be accepted; NaiveDateTimeError for a date without a
                time zone.
            PayloadError: The event can't be stored.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.
        """
        store = self._engine.store
        values: dict[str, Any] = {}
        if event is not None:
            named = self._named(Posting(event=event, event_name=event_name))
            values |= store.rows.payload(self.full_name, named)
        keys = store.rows.keys(self.full_name, search_key1=search_key1, search_key2=search_key2)
        moves = at is not None or delay is not None
        if moves:
            values["effective_date"] = due_date(
                at, delay, queue_name=self.full_name, now=lambda: store.now(connection)
            )
        entry = self._entries.update(record_id, values, keys, connection=connection)
        if moves:
            self._engine.poster.rescheduled(entry.effective_date, connection)
        return entry

    def remove(
        self,
        record_id: int | None = None,
        *,
        search_key1: SearchKey | Keyless | Unset = UNSET,
        search_key2: SearchKey | Keyless | Unset = UNSET,
        connection: CallersConnection | None = None,
    ) -> int:
        """Move notifications that have not started to history, as REMOVED.

        Args:
            record_id: Only this one; or give keys.
            search_key1: Only those with this key; KEYLESS: without one. None is refused.
            search_key2: As `search_key1`.
            connection: As for `PersistentBus.post`: the removal is part of its transaction.

        Returns:
            The number of removed notifications. By keys, those that run are left.

        Raises:
            EntryNotFoundError: The queue has no notification of this id.
            EntryNotChangeableError: The one of this id runs already, or has ended.
            InvalidPostError: Neither an id nor a key is given, or both, or one can't be accepted.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: Nothing was written; CommitUnknownError if that is not known.
        """
        wanted = Filter(search_key1=search_key1, search_key2=search_key2)
        removed = self._entries.remove(record_id, wanted, connection=connection)
        if removed:
            self._engine.poster.freed(connection)
        return removed

    async def update_async(
        self,
        record_id: int,
        *,
        connection: AsyncCallersConnection | None = None,
        **changes: Unpack[UpdateOptions],
    ) -> Entry:
        """Awaitable twin of `update`, with the same changes."""
        return await awaited(
            lambda inner: self.update(record_id, connection=inner, **changes), connection
        )

    async def remove_async(
        self,
        record_id: int | None = None,
        *,
        connection: AsyncCallersConnection | None = None,
        **keys: Unpack[SearchKeys],
    ) -> int:
        """Awaitable twin of `remove`, with the same keys."""
        return await awaited(
            lambda inner: self.remove(record_id, connection=inner, **keys), connection
        )
