"""Failed entries: listed, retried and discarded."""

from __future__ import annotations

import asyncio
from typing import Unpack

import msgspec

from queue_core.bulk_changes.bulk_change import BulkChange, wanted_of
from queue_core.bulk_options import (
    DeadLetterOptions,
    FailedFilters,
    FailedOptions,
    RetryAllOptions,
)
from queue_core.errors import InvalidPostError
from queue_core.model.entry import Entry
from queue_core.model.states import State, States
from queue_core.reading.bulk import BulkResult, Stop
from queue_core.reading.changes import Discarding, Retrying
from queue_core.reading.history import REPEATABLE
from queue_core.reading.search import dead_letter_entries
from queue_core.reading.truncation import Progress
from queue_core.storage.arguments import flag
from queue_core.storage.filter import Filter, state_values


class FailedEntries(BulkChange):
    """Those of one queue, or of all queues of the table."""

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
        same `finished_before` to leave out later failures. Entries that were discarded stay.
        A retry waits for no others, also if the entry was posted `after` some.

        Args:
            states: Those that ended so: FAILED, REMOVED. Default: FAILED.
            all_subscribers: Run subscribers, too, that had succeeded. Default: False.
            dry_run: Change nothing; count the matching entries, and show the first. Default: False.
            progress: Called after each batch with (entries done so far, entries that match).
            stop: An event, or a function without arguments: once it is set, or answers True, the
                call ends after the batch under way. Default: never.
            filters: As for `dead_letters`. Default: all.

        Returns:
            The progress of the change, with the entries that could not be retried.

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
        again = flag(all_subscribers, "all_subscribers")
        change = Retrying(self._bulk_engine.store, all_subscribers=again)
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
            The progress of the change.

        Raises:
            InvalidPostError: As for `retry_all`.
            ConfigurationError: As for `retry_all`.
            DatabaseUnreachableError: As for `retry_all`.
        """
        change = Discarding(self._bulk_engine.store)
        wanted = self._ended(filters, State.FAILED)
        return self._change(change, wanted, dry_run=dry_run, progress=progress, stop=stop)

    async def dead_letters_async(self, **options: Unpack[DeadLetterOptions]) -> list[Entry]:
        """Awaitable twin of `dead_letters`, in a thread."""
        return await asyncio.to_thread(lambda: self.dead_letters(**options))

    async def retry_all_async(self, **options: Unpack[RetryAllOptions]) -> BulkResult:
        """Awaitable twin of `retry_all`, in a thread, which calls `progress` and `stop`."""
        return await asyncio.to_thread(lambda: self.retry_all(**options))

    async def discard_all_async(self, **options: Unpack[FailedOptions]) -> BulkResult:
        """Awaitable twin of `discard_all`, in a thread, which calls `progress` and `stop`."""
        return await asyncio.to_thread(lambda: self.discard_all(**options))

    def _ended(self, filters: FailedFilters, states: States) -> Filter:
        chosen = state_values(states)
        if not set(chosen) <= set(REPEATABLE):
            raise InvalidPostError(
                f"{self._bulk_label}: states={', '.join(chosen)} is not allowed. Allowed: one or "
                f"both of {', '.join(REPEATABLE)}. Nothing was written.",
                queue_name=self._bulk_queue,
                key="states",
            )
        return msgspec.structs.replace(wanted_of(filters), states=[State(one) for one in chosen])
