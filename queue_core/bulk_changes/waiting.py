"""Entries that have not started: removed and rescheduled."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Unpack

import msgspec

from queue_core.bulk_changes.bulk_change import BulkChange, wanted_of
from queue_core.bulk_options import (
    BulkOptions,
    RescheduleAllOptions,
    WaitingFilters,
    WaitingOptions,
)
from queue_core.errors import InvalidPostError
from queue_core.model.due_date import due_date
from queue_core.reading.bulk import BulkResult, Stop
from queue_core.reading.changes import NOT_STARTED, Removing, Rescheduling
from queue_core.reading.truncation import Progress
from queue_core.storage.filter import Filter


class WaitingEntries(BulkChange):
    """Those of one queue, or of all queues of the table."""

    def remove_all(
        self,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
        stop: Stop | None = None,
        **filters: Unpack[WaitingFilters],
    ) -> BulkResult:
        """Remove every entry that matches and has not started, in batches of 100.

        They go to history as REMOVED, and `retry_all(states="REMOVED")` brings them back. Entries
        that run are left.

        Args:
            dry_run: As for `retry_all`.
            progress: As for `retry_all`.
            stop: As for `retry_all`.
            filters: At least one of `search_key1`, `search_key2`, `record_ids` and
                `effective_before`, as for `PersistentBus.find`, and `event_name`. Without a filter,
                `clear` is the call.

        Returns:
            The progress of the change.

        Raises:
            InvalidPostError: No filter is given; otherwise as for `retry_all`.
            ConfigurationError: As for `retry_all`.
            DatabaseUnreachableError: As for `retry_all`.
        """
        if wanted_of(filters) == Filter():
            raise InvalidPostError(
                f"{self._bulk_label}: remove_all takes a filter; clear removes everything. Nothing "
                "was removed.",
                queue_name=self._bulk_queue,
            )
        return self._remove(filters, dry_run=dry_run, progress=progress, stop=stop)

    def reschedule_all(
        self,
        *,
        at: datetime | None = None,
        delay: timedelta | float | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        stop: Stop | None = None,
        **filters: Unpack[WaitingFilters],
    ) -> BulkResult:
        """Give every entry that matches and has not started another date, in batches of 100.

        All its subscribers that wait for a retry run then.

        Args:
            at: The aware date; or give `delay`. A past date means now.
            delay: Seconds or a timedelta from the beginning of the call, 0 or more; or give `at`.
            dry_run: As for `retry_all`.
            progress: As for `retry_all`.
            stop: As for `retry_all`.
            filters: As for `remove_all`. Default: all.

        Returns:
            The progress of the change.

        Raises:
            InvalidPostError: Neither a date nor a delay is given, or both; otherwise as for
                `retry_all`.
            ConfigurationError: As for `retry_all`.
            DatabaseUnreachableError: As for `retry_all`.
        """
        store = self._bulk_engine.store
        due = due_date(at, delay, queue_name=self._bulk_label, now=store.now)
        wanted, change = self._waiting(filters), Rescheduling(store, due=due)
        return self._change(change, wanted, due=due, dry_run=dry_run, progress=progress, stop=stop)

    def clear(
        self,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
        stop: Stop | None = None,
    ) -> BulkResult:
        """Remove everything that has not started, in batches of 100; of a service: of all queues.

        As `remove_all`. Entries that are posted after the call began stay; recurring schedules go
        on.

        Args:
            dry_run: As for `retry_all`.
            progress: As for `retry_all`.
            stop: As for `retry_all`.

        Returns:
            The progress of the change.

        Raises:
            ConfigurationError: As for `retry_all`.
            DatabaseUnreachableError: As for `retry_all`.
        """
        return self._remove({}, dry_run=dry_run, progress=progress, stop=stop)

    async def remove_all_async(self, **options: Unpack[WaitingOptions]) -> BulkResult:
        """Awaitable twin of `remove_all`, in a thread, which calls `progress` and `stop`."""
        return await asyncio.to_thread(lambda: self.remove_all(**options))

    async def reschedule_all_async(self, **options: Unpack[RescheduleAllOptions]) -> BulkResult:
        """Awaitable twin of `reschedule_all`, in a thread, which calls `progress` and `stop`."""
        return await asyncio.to_thread(lambda: self.reschedule_all(**options))

    async def clear_async(self, **options: Unpack[BulkOptions]) -> BulkResult:
        """Awaitable twin of `clear`, in a thread, which calls `progress` and `stop`."""
        return await asyncio.to_thread(lambda: self.clear(**options))

    def _remove(self, filters: WaitingFilters, **options: Unpack[BulkOptions]) -> BulkResult:
        return self._change(Removing(self._bulk_engine.store), self._waiting(filters), **options)

    def _waiting(self, filters: WaitingFilters) -> Filter:
        return msgspec.structs.replace(wanted_of(filters), states=NOT_STARTED)
