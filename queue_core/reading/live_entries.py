"""Live entries, read, changed and removed in the caller's transaction or in one of the library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from queue_core.errors import EntryNotChangeableError, EntryNotFoundError, InvalidPostError
from queue_core.model.entry import Entry
from queue_core.model.lanes import ANY_NODE
from queue_core.model.states import State
from queue_core.runtime.callers import CallersConnection
from queue_core.runtime.exact import exact_text
from queue_core.storage.arguments import storable_integer, storable_name
from queue_core.storage.endings import remove_locked
from queue_core.storage.filter import EVERY, Filter
from queue_core.storage.progress import move_retries
from queue_core.storage.search_keys import columns_of
from queue_core.storage.store import Store
from sql.search_keys import StoredKey

"""The filter of a removal without conditions, which is refused."""


class Entries:
    """The live entries of one queue (`queue_name`), or of all queues of the table (None)."""

    def __init__(self, store: Store, queue_name: str | None) -> None:
        self._store = store
        self._queue_name = queue_name
        self._label = queue_name or store.config.table

    def find(
        self,
        wanted: Filter,
        *,
        limit: int | None = None,
        connection: CallersConnection | None = None,
    ) -> list[Entry]:
        """Live entries that are wanted, by ascending id."""
        where = wanted.conditions(self._queue_name)
        limit = None if limit is None else storable_integer(limit, "limit", least=0)
        return self._store.read(
            connection,
            self._label,
            lambda inner: self._store.find(inner, where=where, limit=limit),
        )

    def ready_count(
        self, *, owner: str | None = None, connection: CallersConnection | None = None
    ) -> int:
        """The number of due AVAILABLE entries; `owner` counts only those in that node's lane."""
        statements, now = self._store.statements, self._store.now(connection)
        if owner is not None and exact_text(owner) != ANY_NODE:
            owner = storable_name(owner, "owner")

        def work(inner: Connection) -> int:
            return statements.ready_count(inner, now=now, queue_name=self._queue_name, lane=owner)

        return self._store.read(connection, self._label, work)

    def update(
        self,
        record_id: int,
        values: Mapping[str, Any],
        keys: Mapping[str, StoredKey | None] | None = None,
        *,
        connection: CallersConnection | None = None,
    ) -> Entry:
        """Write columns and search keys of an entry that has not started, and return it.

        Raises EntryNotFoundError, or EntryNotChangeableError if it runs or has ended; nothing was
        written then.
        """
        record_id = storable_integer(record_id, "record_id")

        def work(inner: Connection) -> Entry:
            found = self._search_id(inner, record_id)
            if found is not None and keys:
                _ = found.captured  # texts of keys stand among the headers
            if found is not None and (values or keys):
                found = self._changed(inner, record_id, values, keys or {})
            if found is None:
                raise self._unchangeable(inner, record_id)
            return found

        return self._store.write(connection, self._label, work)

    def _changed(
        self,
        connection: Connection,
        record_id: int,
        values: Mapping[str, Any],
        keys: Mapping[str, StoredKey | None],
    ) -> Entry | None:
        statements = self._store.statements
        # Not by the UPDATE's count: a driver's connection may leave out a row that has these
        # values already.
        if not statements.lock_available(connection, ids=[record_id]):
            return None
        if keys:
            headers = statements.locked_headers(connection, record_id=record_id)
            values = {**values, **columns_of(keys, headers)}
        statements.change(connection, record_id=record_id, values=values)
        if "effective_date" in values:
            move_retries(statements, connection, [record_id], values["effective_date"])
        return self._search_id(connection, record_id)

    def release(self, record_id: int, *, connection: CallersConnection | None = None) -> bool:
        """Let an entry run that waits for others; False if it waits for none.

        Raises EntryNotFoundError, or EntryNotChangeableError if it runs or has ended.
        """
        record_id = storable_integer(record_id, "record_id")

        def work(inner: Connection) -> bool:
            found = self._search_id(inner, record_id)
            if not found or not self._store.statements.lock_available(inner, ids=[record_id]):
                raise self._unchangeable(inner, record_id)
            locked = self._search_id(inner, record_id) or found
            return self._store.dependencies.release(inner, locked, lent=connection is not None)

        return self._store.write(connection, self._label, work)

    def _search_id(
        self, connection: Connection, record_id: int, *, past: bool = False
    ) -> Entry | None:
        where = Filter(record_ids=[record_id]).conditions(self._queue_name)
        found = self._store.find(connection, past=past, where=where)
        return found[0] if found else None

    def _unchangeable(
        self, connection: Connection, record_id: int
    ) -> EntryNotFoundError | EntryNotChangeableError:
        found = self._search_id(connection, record_id) or self._search_id(
            connection, record_id, past=True
        )
        facts = {"record_id": record_id, "queue_name": self._queue_name}
        if found is None:
            return EntryNotFoundError(
                f"{self._label}: there is no entry {record_id}, neither live nor in history. "
                "Nothing was changed.",
                **facts,
            )
        state = found.processing_state.value
        if found.processing_state is State.AVAILABLE:
            state = (
                f"{state} only in this transaction's snapshot of the database; by now it runs, or "
                "has ended"
            )
        return EntryNotChangeableError(
            f"{self._label}: entry {record_id} is {state}. Only AVAILABLE and WAITING "
            "entries can be changed or removed. Nothing was changed.",
            state=found.processing_state.value,
            **facts,
        )

    def remove(
        self,
        record_id: int | None = None,
        wanted: Filter = EVERY,
        *,
        connection: CallersConnection | None = None,
    ) -> int:
        """Move entries that have not started to history as REMOVED, and return how many.

        By id: raises EntryNotFoundError or EntryNotChangeableError. By a filter: those that run are
        left alone. Ids are read without locks first, for the reason that
        `Statements.lock_available` gives.
        """
        if (record_id is None) == wanted.matches_all:
            raise InvalidPostError(
                f"{self._label}: remove takes a record id, or search keys. Nothing was removed.",
                queue_name=self._queue_name,
            )
        record_id = None if record_id is None else storable_integer(record_id, "record_id")
        statements = self._store.statements
        ended = {
            "processing_state": State.REMOVED.value,
            "finished_date": self._store.now(connection),
        }

        def work(inner: Connection) -> int:
            if record_id is not None:
                ids = [record_id] if self._search_id(inner, record_id) else []
            else:
                found = self._store.find(inner, where=wanted.conditions(self._queue_name))
                ids = [entry.record_id for entry in found]
            locked = statements.lock_available(inner, ids=ids) if ids else []
            if record_id is not None and not locked:
                raise self._unchangeable(inner, record_id)
            return remove_locked(self._store, inner, locked, ended, lent=connection is not None)

        return self._store.write(connection, self._label, work)
