"""Failed entries and changes of all entries that match, for a bus, a service or one queue."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any, Unpack

import msgspec

from queue_core.bulk_options import (
    BulkOptions,
    DeadLetterOptions,
    FailedFilters,
    FailedOptions,
    RescheduleAllOptions,
    RetryAllOptions,
    WaitingFilters,
    WaitingOptions,
)
from queue_core.engine import QueueEngine
from queue_core.errors import InvalidPostError
from queue_core.model.due_date import due_date
from queue_core.model.entry import Entry
from queue_core.model.states import State, States
from queue_core.reading.bulk import Bulk, BulkResult, Stop
from queue_core.reading.changes import (
    NOT_STARTED,
    Change,
    Discarding,
    Removing,
    Rescheduling,
    Retrying,
)
from queue_core.reading.history import REPEATABLE
from queue_core.reading.search import dead_letter_entries
from queue_core.reading.truncation import Progress
from queue_core.storage.arguments import name
from queue_core.storage.filter import Filter, checked_ids, state_values
from sql.tables import CLASS_NAME_LENGTH


class BulkChanges:
    """Changes what matches in one queue (`queue_name`), or in all queues of the table (None)."""

    def __init__(self, engine: QueueEngine, queue_name: str | None) -> None:
        self._bulk_engine = engine
        self._bulk_queue = queue_name
        self._bulk_label = queue_name or engine.store.config.table

    def dead_letters(
        self, *, limit: int | None = None, **filters: Unpack[FailedFilters]
    ) -> list[Entry]:
        """List the entries that ended FAILED, and that nobody has retried or discarded.

        Of the 100,000 newest rows of the table's history.

        Args:
            limit: At most this number. Default: all.
            filters: Only those that match all that is given. `search_key1`, `search_key2`,
                `record_ids`, `finished_before` and `finished_since` as for `PersistentBus.history`;
                `event_name`: of this name; `error_type`: whose error, or that of their first
                subscriber that failed, is of the type of this name, such as "TimeoutError";
                `error_text`: whose `last_error` has this text, in lower or upper case.

        Returns:
            The entries, the newest id first, each with its `last_error`.

        Raises:
            InvalidPostError: A value that no entry can have; NaiveDateTimeError for a date without
                a time zone.
            DatabaseUnreachableError: The database does not answer.

        Example:
            ```python
            for entry in bus.dead_letters(error_type="TimeoutError", limit=20):
                print(entry.record_id, entry.class_name, entry.last_error)
            ```
        """
        return dead_letter_entries(
            self._bulk_engine.store, self._bulk_queue, wanted_of(filters), limit
        )

    def retry_all(
        self,
        *,
        states: States = State.FAILED,
        all_subscribers: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
        stop: Stop | None = None,
        **filters: Unpack[FailedFilters],
    ) -> BulkResult:
        """Retry every entry of history that matches, in batches of 100, each a transaction.

        An entry is retried once, however often and by whomever this is called, and not again until
        its retry has failed. So a call that was stopped or killed is simply repeated. Give it the
        same `finished_before` to leave out what has failed since. Entries that were discarded stay.

        Args:
            states: Those that ended so: FAILED, REMOVED. Default: FAILED.
            all_subscribers: Run subscribers, too, that had succeeded. Default: False.
            dry_run: Change nothing; count what matches, and show the first. Default: False.
            progress: Called after each batch with (entries done so far, entries that match).
            stop: An event, or a function without arguments: once it is set, or answers True, the
                call ends after the batch under way. Default: never.
            filters: As for `dead_letters`. Default: all.

        Returns:
            How far it came, with the entries that could not be retried.

        Raises:
            InvalidPostError: A value that no entry can have, or a state that can't be retried;
                NaiveDateTimeError for a date without a time zone. Nothing was written.
            ConfigurationError: `progress` or `stop` can't be called. Nothing was written.
            DatabaseUnreachableError: The database does not answer. Batches may be done already.

        Example:
            ```python
            done = bus.retry_all(error_type="TimeoutError", finished_since=outage_began)
            print(done.changed, "of", done.matched)
            ```
        """
        change = Retrying(self._bulk_engine.store, all_subscribers=all_subscribers)
        wanted = self._ended(filters, states)
        return self._change(change, wanted, dry_run=dry_run, progress=progress, stop=stop)

    def discard_all(
        self,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
        stop: Stop | None = None,
        **filters: Unpack[FailedFilters],
    ) -> BulkResult:
        """Discard every dead letter that matches, in batches of 100, each a transaction.

        They stay in history, and count as dead letters no more.

        Args:
            dry_run: As for `retry_all`.
            progress: As for `retry_all`.
            stop: As for `retry_all`.
            filters: As for `dead_letters`. Default: all.

        Returns:
            How far it came.

        Raises:
            InvalidPostError: As for `retry_all`.
            ConfigurationError: As for `retry_all`.
            DatabaseUnreachableError: As for `retry_all`.
        """
        change = Discarding(self._bulk_engine.store)
        wanted = self._ended(filters, State.FAILED)
        return self._change(change, wanted, dry_run=dry_run, progress=progress, stop=stop)

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
            How far it came.

        Raises:
            InvalidPostError: No filter is given; otherwise as for `retry_all`.
            ConfigurationError: As for `retry_all`.
            DatabaseUnreachableError: As for `retry_all`.
        """
        if wanted_of(filters) == Filter():
            raise InvalidPostError(
                f"{self._bulk_label}: remove_all takes a filter; clear removes everything. Nothing was removed.",
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

        Args:
            at: The aware date; or give `delay`. A past date means now.
            delay: Seconds or a timedelta from the beginning of the call; or give `at`.
            dry_run: As for `retry_all`.
            progress: As for `retry_all`.
            stop: As for `retry_all`.
            filters: As for `remove_all`. Default: all.

        Returns:
            How far it came.

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

        As `remove_all`. What is posted after the call began stays; recurring schedules go on.

        Args:
            dry_run: As for `retry_all`.
            progress: As for `retry_all`.
            stop: As for `retry_all`.

        Returns:
            How far it came.

        Raises:
            ConfigurationError: As for `retry_all`.
            DatabaseUnreachableError: As for `retry_all`.
        """
        return self._remove({}, dry_run=dry_run, progress=progress, stop=stop)

    # -- awaitable twins --------------------------------------------------------------------------

    async def dead_letters_async(self, **options: Unpack[DeadLetterOptions]) -> list[Entry]:
        """Awaitable twin of `dead_letters`, in a thread."""
        return await asyncio.to_thread(lambda: self.dead_letters(**options))

    async def retry_all_async(self, **options: Unpack[RetryAllOptions]) -> BulkResult:
        """Awaitable twin of `retry_all`, in a thread, which calls `progress` and `stop`."""
        return await asyncio.to_thread(lambda: self.retry_all(**options))

    async def discard_all_async(self, **options: Unpack[FailedOptions]) -> BulkResult:
        """Awaitable twin of `discard_all`, in a thread, which calls `progress` and `stop`."""
        return await asyncio.to_thread(lambda: self.discard_all(**options))

    async def remove_all_async(self, **options: Unpack[WaitingOptions]) -> BulkResult:
        """Awaitable twin of `remove_all`, in a thread, which calls `progress` and `stop`."""
        return await asyncio.to_thread(lambda: self.remove_all(**options))

    async def reschedule_all_async(self, **options: Unpack[RescheduleAllOptions]) -> BulkResult:
        """Awaitable twin of `reschedule_all`, in a thread, which calls `progress` and `stop`."""
        return await asyncio.to_thread(lambda: self.reschedule_all(**options))

    async def clear_async(self, **options: Unpack[BulkOptions]) -> BulkResult:
        """Awaitable twin of `clear`, in a thread, which calls `progress` and `stop`."""
        return await asyncio.to_thread(lambda: self.clear(**options))

    def _change(
        self,
        change: Change,
        wanted: Filter,
        due: datetime | None = None,
        **options: Unpack[BulkOptions],
    ) -> BulkResult:
        """Change what is wanted; what may run because of it is `due` (default: now)."""
        engine = self._bulk_engine
        now = engine.store.now()
        bulk = Bulk(
            change,
            queue_name=self._bulk_queue,
            wanted=wanted,
            wake=lambda: engine.poster.rescheduled(due or now),
            progress=options.get("progress"),
            stop=options.get("stop"),
        )
        return bulk.run(dry_run=options.get("dry_run", False))

    def _remove(self, filters: WaitingFilters, **options: Unpack[BulkOptions]) -> BulkResult:
        return self._change(Removing(self._bulk_engine.store), self._waiting(filters), **options)

    def _ended(self, filters: FailedFilters, states: States) -> Filter:
        chosen = state_values(states)
        if not set(chosen) <= set(REPEATABLE):
            raise InvalidPostError(
                f"{self._bulk_label}: states={', '.join(chosen)} is not allowed. Allowed: one or both of "
                f"{', '.join(REPEATABLE)}. Nothing was written.",
                queue_name=self._bulk_queue,
                key="states",
            )
        return msgspec.structs.replace(wanted_of(filters), states=[State(one) for one in chosen])

    def _waiting(self, filters: WaitingFilters) -> Filter:
        return msgspec.structs.replace(wanted_of(filters), states=NOT_STARTED)


def wanted_of(filters: FailedFilters | WaitingFilters) -> Filter:
    """The filter of a call's options. Raises InvalidPostError for a value no entry can have."""
    found: dict[str, Any] = dict(filters)
    event_name, ids = found.pop("event_name", None), found.get("record_ids")
    if event_name is not None:
        found["class_name"] = name(event_name, "event_name", limit=CLASS_NAME_LENGTH)
    if ids is not None:
        found["record_ids"] = checked_ids(ids)
    return Filter(**found)
