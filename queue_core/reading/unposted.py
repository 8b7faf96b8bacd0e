"""Entries of one customer that are kept until others have ended, and posted then.

They are callbacks of groups, and payloads that wait behind a running entry with their key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec
from sqlalchemy import Connection, Row

from queue_core.links.following import Following
from queue_core.links.groups import Callbacks
from queue_core.storage.store import Store
from sql.search_keys import StoredKey

BATCH = 100
"""Rows of one transaction: posts into these groups, and with these keys, wait for it."""


class Unposted:
    """Those with all of some search keys, in one queue, or in all of the table (None)."""

    def __init__(
        self, store: Store, queue_name: str | None, search_keys: Mapping[str, StoredKey]
    ) -> None:
        self._store = store
        self._queue_name = queue_name
        self._search_keys = search_keys
        self._groups = store.groups.statements
        self._keys = store.keys.keys
        self._parts = [f'"{column}":{key.number},' for column, key in search_keys.items()]
        """Texts that the JSON of such an entry holds."""

    def count(self) -> int:
        """Their number."""

        def work(connection: Connection) -> int:
            found = sum(self._cleared(row)[1] for row in self._of_groups(connection))
            return found + sum(map(self._is_one, self._of_keys(connection)))

        return self._store.read(None, self._store.config.table, work)

    def delete(self) -> int:
        """Delete them in batches of a transaction each, and return how many there were."""
        database = self._store.database
        ids = [row.group_id for row in database.fetch(self._of_groups)]
        deleted = sum(self._batches(ids, self._clear))
        rows = sorted(database.fetch(self._of_keys), key=attrgetter("queue_name", "entry_key"))
        for queue_name, of_queue in groupby(rows, attrgetter("queue_name")):
            keys = [row.entry_key for row in of_queue]
            deleted += sum(self._batches(keys, partial(self._drop, queue_name)))
        return deleted

    def _batches(
        self, items: Sequence[Any], work: Callable[[Sequence[Any], Connection], int]
    ) -> Iterator[int]:
        for start in range(0, len(items), BATCH):
            yield self._store.database.write(partial(work, items[start : start + BATCH]))

    # -- callbacks of groups ----------------------------------------------------------------------

    def _of_groups(self, connection: Connection) -> list[Row[Any]]:
        return self._groups.with_callbacks(
            connection, self._store.config.table, queue_name=self._queue_name, parts=self._parts
        )

    def _clear(self, ids: Sequence[int], connection: Connection) -> int:
        deleted = 0
        # Read in this transaction, for the reason that `Statements.lock_available` gives.
        read = [row.group_id for row in self._groups.read(connection, ids)]
        for row in self._groups.lock_callbacks(connection, read):
            left, callbacks = self._cleared(row)
            if callbacks:
                self._groups.set_callbacks(connection, row.group_id, left.encoded)
                deleted += callbacks
        return deleted

    def _cleared(self, row: Row[Any]) -> tuple[Callbacks, int]:
        """The callbacks of a group that have not the search keys, and the number of the others."""
        found = msgspec.structs.asdict(msgspec.json.decode(row.callbacks or "{}", type=Callbacks))
        gone = [name for name, one in found.items() if one is not None and self._has_keys(one)]
        return Callbacks(**{name: found[name] for name in found if name not in gone}), len(gone)

    # -- payloads behind a running entry ----------------------------------------------------------

    def _of_keys(self, connection: Connection) -> list[Row[Any]]:
        return self._keys.requeued(
            connection, self._store.config.table, queue_name=self._queue_name, parts=self._parts
        )

    def _drop(self, queue_name: str, keys: Sequence[str], connection: Connection) -> int:
        table = self._store.config.table
        locked = self._keys.find(connection, table, queue_name, keys=keys, lock=True)
        mine = [row.entry_key for row in locked if self._is_one(row)]
        self._keys.change(connection, table, queue_name, mine, {"requeue": None})
        return len(mine)

    def _is_one(self, row: Row[Any]) -> bool:
        return row.requeue is not None and self._has_keys(
            msgspec.json.decode(row.requeue, type=Following)
        )

    def _has_keys(self, following: Following) -> bool:
        row = msgspec.structs.asdict(following)
        return all(key.stands_in(column, row) for column, key in self._search_keys.items())
