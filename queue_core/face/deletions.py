"""The deletions by hand that a bus or service takes."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Unpack

from queue_core.face.part import FacePart
from queue_core.maintenance import ForgetOptions, TruncateOptions
from queue_core.model.posting import SearchKey
from queue_core.model.states import States
from queue_core.reading.forgetting import Forgotten
from queue_core.reading.truncation import Progress
from queue_core.storage.search_keys import UNSET, Unset


class FaceDeletions(FacePart):
    """Deletes many rows, while everything runs."""

    def truncate_history(
        self,
        *,
        before: datetime | None = None,
        states: States | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Delete history of all queues of the table, while everything runs.

        Without `before` and `states` the whole table is emptied at once. Its exclusive lock is
        waited for at most 50 ms a try; outcomes written meanwhile wait for it. With them, and on
        SQLite and MySQL, rows go in batches of 2,000, each a transaction. Partitions all of whose
        rows ended before are dropped, unless `states` are given. Live entries are never touched.

        Args:
            before: Only entries that ended before this aware date. Default, and for a date to come:
                all that had ended when the call began.
            states: Only entries that ended so: PROCESSED, FAILED, REAPED, REMOVED. Default: all.
            progress: Called after each batch with (rows deleted so far, rows to be deleted).

        Returns:
            The number of deleted rows; of a dropped partition with more than 10,000 a guess.

        Raises:
            InvalidPostError: A state is not allowed; NaiveDateTimeError for a date without a time
                zone. Nothing was deleted.
            ConfigurationError: `progress` can't be called. Nothing was deleted.
            LifecycleError: Another call truncates, archives or forgets this history. Nothing was
                deleted.
            DatabaseUnreachableError: The database does not answer. Batches may be deleted already.
        """
        return self._maintenance.truncate(before=before, states=states, progress=progress)

    def forget(
        self,
        *,
        search_key1: SearchKey | Unset = UNSET,
        search_key2: SearchKey | Unset = UNSET,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Forgotten:
        """Delete all that has the keys of one customer, of all queues of the table.

        Everything may run meanwhile. Waiting entries and rows of history are deleted in batches of
        2,000, each a transaction; callbacks of groups and payloads that wait behind a running entry
        with their key, too. Entries that some node runs are listed and left: call again when
        they have ended. Entries posted later than a second after the call began stay. Archives are
        not touched.

        Args:
            search_key1: Only rows with this key. If it is given alone, the whole table is read.
            search_key2: As `search_key1`. At least one is given; if both are, rows have both.
            dry_run: Delete nothing, and count the rows that would be deleted. Default: False.
            progress: Called after each batch with (rows deleted so far, rows to be deleted).

        Returns:
            The numbers of deleted and of remaining rows.

        Raises:
            InvalidPostError: No key is given, or one that can't be a key. Nothing was deleted.
            ConfigurationError: `progress` can't be called. Nothing was deleted.
            LifecycleError: Another call truncates, archives or forgets this history. Nothing was
                deleted.
            DatabaseUnreachableError: The database does not answer. Batches may be deleted already.

        Example:
            ```python
            left = bus.forget(search_key2=customer.id).running
            ```
        """
        return self._maintenance.forget(
            search_key1=search_key1, search_key2=search_key2, dry_run=dry_run, progress=progress
        )

    async def truncate_history_async(self, **options: Unpack[TruncateOptions]) -> int:
        """Awaitable twin of `truncate_history`, in a thread, which calls `progress`."""
        return await asyncio.to_thread(lambda: self.truncate_history(**options))

    async def forget_async(self, **options: Unpack[ForgetOptions]) -> Forgotten:
        """Awaitable twin of `forget`, in a thread, which calls `progress`."""
        return await asyncio.to_thread(lambda: self.forget(**options))
