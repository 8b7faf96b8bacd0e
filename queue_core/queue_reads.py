"""Reads of the entries of one bus or notification queue."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Unpack

from queue_core.engine import QueueEngine
from queue_core.model.entry import Entry
from queue_core.model.posting import SearchKey
from queue_core.model.states import States
from queue_core.reading.explanation import Explanation, explain
from queue_core.reading.filters import FindOptions, HistoryOptions
from queue_core.reading.held_keys import HeldKey, held_keys
from queue_core.reading.history import History
from queue_core.reading.live_entries import Entries
from queue_core.reading.open_circuits import OpenCircuit, open_circuits
from queue_core.runtime.awaitable import awaited
from queue_core.runtime.callers import AsyncCallersConnection, CallersConnection
from queue_core.storage.filter import Filter
from queue_core.storage.search_keys import UNSET, Keyless, Unset


class Reads:
    """Reads of one queue, in the caller's transaction or in another."""

    def __init__(self, engine: QueueEngine, queue_name: str) -> None:
        self._store, self._read_queue = engine.store, queue_name
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
        after_id: int | None = None,
        limit: int | None = None,
        connection: CallersConnection | None = None,
    ) -> list[Entry]:
        """Find live entries.

        Args:
            search_key1: Only those with this key; KEYLESS: without one. None is refused. Default:
                all.
            search_key2: As `search_key1`.
            states: Only those in these states: AVAILABLE, IN_PROCESSING or WAITING. Default: all.
            record_ids: Only these. Default: all.
            effective_before: Only those that are due before this aware date. Default: all.
            after_id: Only those with a higher id: the next page after this last one. Default: all.
            limit: At most this number. Default: all.
            connection: As for `PersistentBus.post`: they are read as its transaction sees them.

        Returns:
            The entries that match all that is given, by ascending id.

        Raises:
            InvalidPostError: A value that no entry can have; NaiveDateTimeError for a date without
                a time zone.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: The database does not answer.
        """
        wanted = Filter(
            search_key1=search_key1,
            search_key2=search_key2,
            states=states,
            record_ids=record_ids,
            effective_before=effective_before,
            after_id=after_id,
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
        after_id: int | None = None,
        error_type: str | None = None,
        error_text: str | None = None,
        limit: int | None = None,
        connection: CallersConnection | None = None,
    ) -> list[Entry]:
        """Find entries that have ended.

        Args:
            search_key1: Only those with this key; KEYLESS: without one. None is refused. Default:
                all.
            search_key2: As `search_key1`.
            states: Only those that ended so: PROCESSED, FAILED, REAPED, REMOVED. Default: all.
            record_ids: Only these. Default: all.
            finished_before: Only those that ended before this aware date. Default: all.
            finished_since: Only those that ended at this aware date or later. Default: all.
            after_id: Only those with a higher id: the next page after this last one. Default: all.
            error_type: Only those whose error, or that of their first subscriber that failed, is of
                the type of this name, such as "TimeoutError". Default: all.
            error_text: Only those whose `last_error` has this text, in lower or upper case.
                Default: all.
            limit: At most this number. Default: all.
            connection: As for `PersistentBus.post`: they are read as its transaction sees them.

        Returns:
            The entries that match all that is given, by ascending id.

        Raises:
            InvalidPostError: A value that no entry can have; NaiveDateTimeError for a date without
                a time zone.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: The database does not answer.
        """
        wanted = Filter(
            search_key1=search_key1,
            search_key2=search_key2,
            states=states,
            record_ids=record_ids,
            finished_before=finished_before,
            finished_since=finished_since,
            after_id=after_id,
            error_type=error_type,
            error_text=error_text,
        )
        return self._history.find(wanted, limit=limit, connection=connection)

    def ready_count(
        self, *, owner: str | None = None, connection: CallersConnection | None = None
    ) -> int:
        """Count the entries that are AVAILABLE and due.

        Args:
            owner: Only those in the lane of this node; an empty text: of any node. Default: all.
            connection: As for `PersistentBus.post`: they are read as its transaction sees them.

        Returns:
            Their number.

        Raises:
            InvalidPostError: `owner` can't be a name.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: The database does not answer.
        """
        return self._entries.ready_count(owner=owner, connection=connection)

    def size(self, *, connection: CallersConnection | None = None) -> int:
        """Count the live entries: those that wait, for any reason, and those that run.

        Args:
            connection: As for `PersistentBus.post`: they are counted as its transaction sees them.

        Returns:
            Their number.

        Raises:
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: The database does not answer.
        """
        statements, queue_name = self._store.statements, self._read_queue
        return self._store.read(
            connection,
            queue_name,
            lambda inner: statements.live_count(inner, queue_name=queue_name),
        )

    async def size_async(self, *, connection: AsyncCallersConnection | None = None) -> int:
        """Awaitable twin of `size`."""
        return await awaited(lambda inner: self.size(connection=inner), connection)

    def held_keys(self, *, connection: CallersConnection | None = None) -> list[HeldKey]:
        """List the order keys whose entries wait because one of them has failed.

        `retry` of that entry lets it run again, and the others follow; `discard` lets them go on
        without it.

        Args:
            connection: As for `PersistentBus.post`: they are read as its transaction sees them.

        Returns:
            The keys, by name.

        Raises:
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: The database does not answer.
        """
        return held_keys(self._store, self._read_queue, connection)

    async def held_keys_async(
        self, *, connection: AsyncCallersConnection | None = None
    ) -> list[HeldKey]:
        """Awaitable twin of `held_keys`."""
        return await awaited(lambda inner: self.held_keys(connection=inner), connection)

    def open_circuits(self, *, connection: CallersConnection | None = None) -> list[OpenCircuit]:
        """List the handlers with a `Circuit` whose failed entries wait for a probe.

        Args:
            connection: As for `PersistentBus.post`: they are read as its transaction sees them.

        Returns:
            The open circuits, by handler.

        Raises:
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: The database does not answer.
        """
        return open_circuits(self._store, self._read_queue, connection)

    async def open_circuits_async(
        self, *, connection: AsyncCallersConnection | None = None
    ) -> list[OpenCircuit]:
        """Awaitable twin of `open_circuits`."""
        return await awaited(lambda inner: self.open_circuits(connection=inner), connection)

    def explain(
        self, record_id: int, *, connection: CallersConnection | None = None
    ) -> Explanation:
        """Tell why an entry is not running: a pause, an entry that it waits for, and so on.

        Args:
            record_id: The id of the entry, live or ended.
            connection: As for `PersistentBus.post`: the entry is read as its transaction sees it.

        Returns:
            All reasons that stand in the tables; as a text, a line for each. An entry that runs, or
            has ended, has one that says so.

        Raises:
            EntryNotFoundError: There is no such entry, neither live nor in history.
            InvalidPostError: The id can't be one.
            InvalidConnectionError: The connection can't be used here.
            DatabaseUnreachableError: The database does not answer.

        Example:
            >>> print(bus.explain(4711))
            The queue is paused by ann@desk since 2026-01-01 09:00:00 UTC, until it is resumed.
        """
        return explain(self._store, record_id, self._read_queue, connection=connection)

    async def explain_async(
        self, record_id: int, *, connection: AsyncCallersConnection | None = None
    ) -> Explanation:
        """Awaitable twin of `explain`."""
        return await awaited(lambda inner: self.explain(record_id, connection=inner), connection)

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
