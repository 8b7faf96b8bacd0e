"""What the bus and a notification queue both answer about their entries, and the awaitable twins of these calls."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypedDict, Unpack

from queue_core.engine import QueueEngine
from queue_core.model.entry import Entry, SearchKey, States
from queue_core.reading.history import History
from queue_core.reading.live_entries import Entries
from queue_core.runtime.awaitable import awaited
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection
from queue_core.storage.filter import Filter
from queue_core.storage.rows import UNSET, Keyless, Unset


class FindOptions(TypedDict, total=False):
    """The filters of `find`."""

    search_key1: SearchKey | Keyless | Unset
    search_key2: SearchKey | Keyless | Unset
    states: States | None
    record_ids: Iterable[int] | None
    effective_before: datetime | None
    limit: int | None


class HistoryOptions(TypedDict, total=False):
    """The filters of `history`."""

    search_key1: SearchKey | Keyless | Unset
    search_key2: SearchKey | Keyless | Unset
    states: States | None
    record_ids: Iterable[int] | None
    finished_before: datetime | None
    finished_since: datetime | None
    limit: int | None


class Reads:
    """Reads of one queue, in or out of the caller's transaction (`connection`, as for `PersistentBus.post`)."""

    def __init__(self, engine: QueueEngine, queue_name: str) -> None:
        self._entries = Entries(engine.store, queue_name)
        self._history = History(engine.store, queue_name)

    def find(
        self,
        *,
        search_key1: SearchKey | Keyless | Unset = UNSET,
        search_key2: SearchKey | Keyless | Unset = UNSET,
        states: States | None = None,
        record_ids: Iterable[int] | None = None,
        effective_before: datetime | None = None,
        limit: int | None = None,
        connection: CallersConnection | None = None,
    ) -> list[Entry]:
        """Live entries that match, by ascending id, as `connection`'s transaction sees them.

        A key that is not given matches all; KEYLESS matches entries without that key; None is
        refused.
        """
        wanted = Filter(
            search_key1=search_key1,
            search_key2=search_key2,
            states=states,
            record_ids=record_ids,
            effective_before=effective_before,
        )
        return self._entries.find(wanted, limit=limit, connection=connection)

    def history(
        self,
        *,
        search_key1: SearchKey | Keyless | Unset = UNSET,
        search_key2: SearchKey | Keyless | Unset = UNSET,
        states: States | None = None,
        record_ids: Iterable[int] | None = None,
        finished_before: datetime | None = None,
        finished_since: datetime | None = None,
        limit: int | None = None,
        connection: CallersConnection | None = None,
    ) -> list[Entry]:
        """Entries that have ended and match, by ascending id; see `find`."""
        wanted = Filter(
            search_key1=search_key1,
            search_key2=search_key2,
            states=states,
            record_ids=record_ids,
            finished_before=finished_before,
            finished_since=finished_since,
        )
        return self._history.find(wanted, limit=limit, connection=connection)

    def ready_count(
        self, *, owner: str | None = None, connection: CallersConnection | None = None
    ) -> int:
        """How many entries are AVAILABLE and due; `owner`: only those kept for that node."""
        return self._entries.ready_count(owner=owner, connection=connection)

    async def find_async(
        self, *, connection: AsyncCallersConnection | None = None, **filters: Unpack[FindOptions]
    ) -> list[Entry]:
        """Awaitable twin of `find`."""
        return await awaited(lambda inner: self.find(connection=inner, **filters), connection)

    async def history_async(
        self, *, connection: AsyncCallersConnection | None = None, **filters: Unpack[HistoryOptions]
    ) -> list[Entry]:
        """Awaitable twin of `history`."""
        return await awaited(lambda inner: self.history(connection=inner, **filters), connection)

    async def ready_count_async(
        self, *, owner: str | None = None, connection: AsyncCallersConnection | None = None
    ) -> int:
        """Awaitable twin of `ready_count`."""
        return await awaited(
            lambda inner: self.ready_count(owner=owner, connection=inner), connection
        )
