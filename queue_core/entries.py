"""Reading, changing and removing entries: what a user asks about live work, in or out of a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, func, select

from queue_core.clock import in_utc
from queue_core.entry import Entry, State
from queue_core.errors import EntryNotChangeableError, EntryNotFoundError, InvalidPostError
from queue_core.store import UNSET, Store, Unset, search_key


def state_values(states: Iterable[State | str]) -> list[str]:
    """The states as columns hold them. Raises InvalidPostError for what is no state."""
    try:
        return [State(state).value for state in states]
    except ValueError as error:
        raise InvalidPostError(
            f"states: {error}. Allowed: a collection of {', '.join(State)}.", key="states", value=str(states)
        ) from error


def conditions(
    queue_name: str | None,
    *,
    record_ids: Iterable[int] | None = None,
    search_key1: int | Unset | None = UNSET,
    search_key2: int | Unset | None = UNSET,
    states: Iterable[State | str] | None = None,
    class_name: str | None = None,
    effective_before: datetime | None = None,
    finished_before: datetime | None = None,
    finished_since: datetime | None = None,
) -> Any:
    """A filter for `Store.search`. A key that is not given matches every value, None only entries without that key.

    Dates are aware; `…_before` excludes its date, `…_since` includes it. Raises InvalidPostError for bad values.
    """
    # Every state rather than no condition: a row in none of them was written by hand, and is no entry.
    wanted = state_values(State if states is None else states)

    def where(table: FromClause) -> Sequence[ColumnElement[bool]]:
        found: list[ColumnElement[bool]] = []
        if queue_name is not None:
            found.append(table.c.queue_name == queue_name)
        if record_ids is not None:
            found.append(table.c.record_id.in_(sorted(record_ids)))
        for name, value in (("search_key1", search_key1), ("search_key2", search_key2)):
            if not isinstance(value, Unset):
                found.append(table.c[name] == search_key(value, name, queue_name or ""))
        found.append(table.c.processing_state.in_(wanted))
        if class_name is not None:
            found.append(table.c.class_name == class_name)
        if effective_before is not None:
            found.append(table.c.effective_date < in_utc(effective_before, key="effective_before"))
        if finished_before is not None:
            found.append(table.c.finished_date < in_utc(finished_before, key="finished_before"))
        if finished_since is not None:
            found.append(table.c.finished_date >= in_utc(finished_since, key="finished_since"))
        return found

    return where


class Entries:
    """The live entries of one queue (`queue_name`), or of all queues of the table (None)."""

    def __init__(self, store: Store, queue_name: str | None) -> None:
        self._store = store
        self._queue_name = queue_name
        self._label = queue_name or store.config.table

    def find(
        self,
        *,
        search_key1: int | Unset | None = UNSET,
        search_key2: int | Unset | None = UNSET,
        states: Iterable[State | str] | None = None,
        record_ids: Iterable[int] | None = None,
        class_name: str | None = None,
        effective_before: datetime | None = None,
        limit: int | None = None,
        connection: Any = None,
    ) -> list[Entry]:
        """Entries that are AVAILABLE or IN_PROCESSING and match, by ascending id; see `conditions`."""
        where = conditions(
            self._queue_name,
            record_ids=record_ids,
            search_key1=search_key1,
            search_key2=search_key2,
            states=states,
            class_name=class_name,
            effective_before=effective_before,
        )
        return self._store.read(
            connection, self._label, lambda inner: self._store.search(inner, where=where, limit=limit)
        )

    def ready_count(self, *, owner: str | None = None, connection: Any = None) -> int:
        """How many entries are AVAILABLE and due; `owner` counts only those in that node's lane."""
        main, now = self._store.statements.main, self._store.clock.now()
        statement = select(func.count()).where(main.c.processing_state == State.AVAILABLE.value)
        statement = statement.where(main.c.effective_date <= now)
        if self._queue_name is not None:
            statement = statement.where(main.c.queue_name == self._queue_name)
        if owner is not None:
            statement = statement.where(main.c.lane == owner)
        return self._store.read(
            connection, self._label, lambda inner: int(inner.execute(statement).scalar_one())
        )

    def update(self, record_id: int, values: Mapping[str, Any], connection: Any = None) -> Entry:
        """Write columns of an entry that has not started, and return it.

        Raises EntryNotFoundError, or EntryNotChangeableError if it runs or has ended; nothing was written then.
        """

        def work(inner: Connection) -> Entry:
            if not values or self._store.statements.change_available(
                inner, record_id=record_id, queue_name=self._queue_name, values=values
            ):
                found = self._search_id(inner, record_id)
                if found is not None:
                    return found
            raise self._unchangeable(inner, record_id)

        return self._store.write(connection, self._label, work)

    def _search_id(self, connection: Connection, record_id: int, *, past: bool = False) -> Entry | None:
        where = conditions(self._queue_name, record_ids=[record_id])
        found = self._store.search(connection, past=past, where=where)
        return found[0] if found else None

    def _unchangeable(
        self, connection: Connection, record_id: int
    ) -> EntryNotFoundError | EntryNotChangeableError:
        found = self._search_id(connection, record_id) or self._search_id(connection, record_id, past=True)
        facts = {"record_id": record_id, "queue_name": self._queue_name}
        if found is None:
            return EntryNotFoundError(
                f"{self._label}: there is no entry {record_id}, neither live nor in history. Nothing was changed.",
                **facts,
            )
        return EntryNotChangeableError(
            f"{self._label}: entry {record_id} is {found.processing_state.value}; only AVAILABLE entries can be changed "
            "or removed. Nothing was changed.",
            **facts,
        )

    def remove(
        self,
        record_id: int | None = None,
        *,
        search_key1: int | Unset | None = UNSET,
        search_key2: int | Unset | None = UNSET,
        connection: Any = None,
    ) -> int:
        """Move entries that have not started to history as REMOVED, and return how many.

        By id: raises EntryNotFoundError or EntryNotChangeableError. By keys (those given, at least one): those that
        run are left alone. Ids are read without locks first, then locked by primary key: an InnoDB range that
        matches nothing would lock gaps in the caller's transaction.
        """
        by_id = record_id is not None
        if by_id == (not (isinstance(search_key1, Unset) and isinstance(search_key2, Unset))):
            raise InvalidPostError(
                f"{self._label}: remove takes a record id, or search keys. Nothing was removed.",
                queue_name=self._queue_name,
            )
        statements = self._store.statements
        ended = {"processing_state": State.REMOVED.value, "finished_date": self._store.clock.now()}

        def work(inner: Connection) -> int:
            if record_id is not None:
                ids = [record_id] if self._search_id(inner, record_id) else []
            else:
                where = conditions(self._queue_name, search_key1=search_key1, search_key2=search_key2)
                ids = [entry.record_id for entry in self._store.search(inner, where=where)]
            locked = statements.lock_available(inner, ids=ids) if ids else []
            if record_id is not None and not locked:
                raise self._unchangeable(inner, record_id)
            return statements.to_history(inner, ids=locked, values=ended)

        return self._store.write(connection, self._label, work)
