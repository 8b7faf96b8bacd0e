"""Forgetting: all that has one customer's search keys is deleted, waiting or ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

import msgspec
from sqlalchemy import Connection

from queue_core.errors import InvalidPostError
from queue_core.model.posting import SearchKey
from queue_core.model.states import State
from queue_core.reading.exclusive import exclusive_history
from queue_core.reading.truncation import DELETE_BATCH, Progress
from queue_core.reading.unposted import Unposted
from queue_core.runtime.arguments import function
from queue_core.storage.arguments import flag
from queue_core.storage.endings import remove_locked
from queue_core.storage.search_keys import UNSET, Unset, sought_key
from queue_core.storage.store import Store
from sql.families import SCHEDULES
from sql.search_keys import StoredKey

_NOT_STARTED = {State.AVAILABLE, State.WAITING}
_CLOCKS_DIFFER = timedelta(seconds=1)
"""An entry that another process posted just before may bear a date later by less than this."""


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a `forget` on one main table and its history.

    Attributes:
        table: The main table.
        live: Waiting entries that were deleted, or would be.
        ended: Rows of history that were deleted, or would be.
        running: Ids of entries that some node runs, which were left: call again when they have
            ended.
        unposted: Entries that were to be posted when others end, and were deleted, or would be:
            callbacks of groups, and payloads that wait behind a running entry with their key. A
            group's callback counts until the group is deleted.
        schedules: Recurring schedules (`service:queue/name`) with these keys, which go on: end them
            with `stop_recurring`.
    """

    table: str
    live: int
    ended: int
    running: tuple[int, ...]
    unposted: int
    schedules: tuple[str, ...]


class Forgetting:
    """Forgets by search keys in one queue (`queue_name`), or in all queues of the table (None)."""

    def __init__(self, store: Store, queue_name: str | None) -> None:
        self._store = store
        self._queue_name = queue_name

    def forget(
        self,
        *,
        search_key1: SearchKey | Unset = UNSET,
        search_key2: SearchKey | Unset = UNSET,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Forgotten:
        """Delete all rows that have all keys that are given; see `Face.forget`."""
        keys = self._keys(search_key1, search_key2)
        if progress is not None:
            function(progress, key="progress")
        turn = _Turn(self._store, self._queue_name, keys, progress)
        if flag(dry_run, "dry_run"):
            return turn.counted()
        with exclusive_history(self._store):
            return turn.deleted()

    def _keys(self, key1: SearchKey | Unset, key2: SearchKey | Unset) -> dict[str, StoredKey]:
        label = self._queue_name or self._store.config.table
        given = {"search_key1": key1, "search_key2": key2}
        keys = {
            name: sought_key(value, name, label)
            for name, value in given.items()
            if not isinstance(value, Unset)
        }
        found = {name: value for name, value in keys.items() if value is not None}
        if not found or len(found) < len(keys):
            raise InvalidPostError(
                f"{label}: forget takes search_key1, search_key2 or both, and neither may be None. "
                "Nothing was deleted.",
                queue_name=label,
            )
        return found


class _Turn:
    """One call. It deletes rows created before it began, so that a busy queue lets it end."""

    def __init__(
        self,
        store: Store,
        queue_name: str | None,
        keys: dict[str, StoredKey],
        progress: Progress | None,
    ) -> None:
        self._store = store
        self._keys = keys
        self._queue_name = queue_name
        self._until = store.now() + _CLOCKS_DIFFER
        self._progress = progress
        self._unposted = Unposted(store, queue_name, keys)
        self._live = self._ended = 0

    def counted(self) -> Forgotten:
        """The numbers of rows that would be deleted."""
        live = self._store.read(None, self._store.config.table, partial(self._rows, past=False))
        self._live = sum(state in _NOT_STARTED for _, state in live)
        self._ended = len(
            self._store.read(None, self._store.config.table, partial(self._rows, past=True))
        )
        running = [record_id for record_id, state in live if state not in _NOT_STARTED]
        return self._told(running, self._unposted.count())

    def deleted(self) -> Forgotten:
        """Delete in batches, until a round finds nothing to delete.

        What is not posted yet goes first: the rounds find what was posted meanwhile.
        An entry that ran at the beginning of a round may end, or be posted anew by a reaper, before
        its end: the next round finds it. So only the entries that the last round saw live are left.
        """
        database, unposted = self._store.database, self._unposted.delete()
        while True:
            before = self._live + self._ended
            live = database.fetch(partial(self._rows, past=False))
            waiting = [record_id for record_id, state in live if state in _NOT_STARTED]
            self._each(waiting, self._delete_live)
            ended = [record_id for record_id, _ in database.fetch(partial(self._rows, past=True))]
            self._each(ended, self._delete_ended)
            if self._live + self._ended == before and not waiting:
                return self._told([record_id for record_id, _ in live], unposted)

    def _each(self, ids: Sequence[int], delete: Callable[[Sequence[int]], None]) -> None:
        total = self._live + self._ended + len(ids)
        for start in range(0, len(ids), DELETE_BATCH):
            delete(ids[start : start + DELETE_BATCH])
            if self._progress is not None:
                self._progress(self._live + self._ended, total)

    def _delete_live(self, ids: Sequence[int]) -> None:
        """Of some entries those that nobody runs by now."""
        statements = self._store.statements
        removed = {
            "processing_state": State.REMOVED.value,
            "finished_date": self._store.clock.now(),
        }

        def work(connection: Connection) -> int:
            # Read in this transaction, for the reason that `Statements.lock_available` gives; and
            # once they are locked, since the keys of an entry may have been changed meanwhile.
            read = self._ids(connection, ids)
            locked = (
                self._ids(connection, statements.lock_available(connection, ids=read))
                if read
                else []
            )
            # By way of history, which keeps to the one way in which rows leave the main table.
            remove_locked(self._store, connection, locked, removed)
            return statements.delete_ended(connection, ids=locked, keys=self._keys) if locked else 0

        self._live += self._store.write(None, self._store.config.table, work)

    def _delete_ended(self, ids: Sequence[int]) -> None:
        self._ended += self._store.database.write(
            partial(self._store.statements.delete_ended, ids=ids, keys=self._keys)
        )

    def _ids(self, connection: Connection, ids: Sequence[int]) -> list[int]:
        """Those of `ids` that are live and have the keys."""
        return [record_id for record_id, _ in self._rows(connection, past=False, ids=ids)]

    def _rows(
        self, connection: Connection, *, past: bool, ids: Sequence[int] | None = None
    ) -> list[tuple[int, str]]:
        rows = self._store.statements.keyed(
            connection,
            past=past,
            keys=self._keys,
            queue_name=self._queue_name,
            until=self._until,
            ids=ids,
        )
        return [(row.record_id, row.processing_state) for row in rows]

    def _told(self, running: Sequence[int], unposted: int) -> Forgotten:
        return Forgotten(
            table=self._store.config.table,
            live=self._live,
            ended=self._ended,
            running=tuple(running),
            unposted=unposted,
            schedules=tuple(self._store.database.fetch(self._schedules)),
        )

    def _schedules(self, connection: Connection) -> list[str]:
        schedules = self._store.database.dialect.statements_for(SCHEDULES)()
        found = schedules.all_schedules(connection)
        return [
            f"{row.queue_name}/{row.name}"
            for row in found
            if row.table_name == self._store.config.table
            and self._queue_name in {None, row.queue_name}
            and all(key.stands_in(column, row._asdict()) for column, key in self._keys.items())
        ]
