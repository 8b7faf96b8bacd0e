"""Idempotency keys of one queue, or of all: where they stand, and their release by hand."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

import msgspec
from sqlalchemy import Connection, Row

from queue_core.model.keyed import KeyState, KeyStatus
from queue_core.runtime.callers import CallersConnection
from queue_core.storage.arguments import storable_name
from queue_core.storage.store import Store
from sql.tables import KEY_LENGTH, QUEUE_NAME_LENGTH

PAGE = 1_000


class Keys:
    """The keys of a main table."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._link, self._table = store.keys, store.config.table

    def status(
        self, queue_name: str, key: str, *, connection: CallersConnection | None = None
    ) -> KeyStatus:
        """The state of a key of a queue. Raises InvalidPostError."""
        queue_name, key = _checked(queue_name, key)

        def work(inner: Connection) -> KeyStatus:
            rows = self._link.keys.find(inner, self._table, queue_name, keys=[key])
            found = self._statuses(inner, rows)
            return found[0] if found else _unknown(self._table, queue_name, key)

        return self._store.read(connection, queue_name, work)

    def release(
        self, queue_name: str, key: str, *, connection: CallersConnection | None = None
    ) -> bool:
        """Free a key of a queue. False if nobody had it. Raises InvalidPostError."""
        queue_name, key = _checked(queue_name, key)
        return self._store.write(
            connection, queue_name, lambda inner: self._link.release(inner, queue_name, key)
        )

    def all_keys(self, queue_name: str | None, limit: int | None) -> list[KeyStatus]:
        """The keys of one queue, or of all (None), by queue and key."""
        if queue_name is not None:
            queue_name = storable_name(queue_name, "queue_name", limit=QUEUE_NAME_LENGTH)
        found = list[KeyStatus]()
        after: tuple[str, str] | None = None
        while limit is None or len(found) < limit:
            size = PAGE if limit is None else min(PAGE, limit - len(found))

            def page(
                connection: Connection, after: tuple[str, str] | None = after, size: int = size
            ) -> tuple[list[Row[tuple[object, ...]]], list[KeyStatus]]:
                rows = self._link.keys.page(
                    connection, self._table, queue_name=queue_name, after=after, limit=size
                )
                return rows, self._statuses(connection, rows)

            rows, statuses = self._store.read(None, self._table, page)
            found += statuses
            if len(rows) < size:
                break
            after = rows[-1].queue_name, rows[-1].entry_key
        return found

    def _statuses(
        self, connection: Connection, rows: list[Row[tuple[object, ...]]]
    ) -> list[KeyStatus]:
        found = list[KeyStatus]()
        for queue_name, group in groupby(rows, attrgetter("queue_name")):
            for hold in self._link.holds(connection, list(group)).values():
                if hold.held:
                    facts = msgspec.structs.asdict(hold)
                    del facts["held"]
                    found.append(KeyStatus(table=self._table, queue_name=queue_name, **facts))
        return found


def _unknown(table: str, queue_name: str, key: str) -> KeyStatus:
    return KeyStatus(table=table, queue_name=queue_name, key=key, state=KeyState.UNKNOWN)


def _checked(queue_name: str, key: str) -> tuple[str, str]:
    queue_name = storable_name(queue_name, "queue_name", limit=QUEUE_NAME_LENGTH)
    return queue_name, storable_name(key, "key", limit=KEY_LENGTH, queue_name=queue_name)
