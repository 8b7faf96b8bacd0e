"""Entries of several tables, found by one filter."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from queue_core.model.entry import Entry, Located
from queue_core.reading.history import History
from queue_core.reading.live_entries import Entries
from queue_core.reading.overview import dead_letter_ids
from queue_core.storage.arguments import storable_integer, storable_name
from queue_core.storage.filter import Filter, checked_ids, state_values
from queue_core.storage.store import Store
from sql.tables import CLASS_NAME_LENGTH, QUEUE_NAME_LENGTH

_FIRST = datetime.min.replace(tzinfo=UTC)


class Search:
    """The conditions of a search, checked before the first of several tables is read.

    Raises InvalidPostError for a value that no entry can have.
    """

    def __init__(
        self,
        wanted: Filter,
        *,
        queue_name: str | None,
        event_name: str | None,
        limit: int | None,
    ) -> None:
        """`queue_name`, `event_name` and `limit`: None for all."""
        ids, states = wanted.record_ids, wanted.states
        self._limit = None if limit is None else storable_integer(limit, "limit", least=0)
        self._queue_name = (
            None
            if queue_name is None
            else storable_name(queue_name, "queue_name", limit=QUEUE_NAME_LENGTH)
        )
        self._wanted = msgspec.structs.replace(
            wanted,
            class_name=None
            if event_name is None
            else storable_name(event_name, "event_name", limit=CLASS_NAME_LENGTH),
            record_ids=None if ids is None else checked_ids(ids),
            states=None if states is None else state_values(states),
        )

    def live(self, stores: Iterable[Store]) -> list[Located]:
        """Live entries, by table and ascending id."""
        found = list[Located]()
        for store in stores:
            left = None if self._limit is None else self._limit - len(found)
            entries = Entries(store, self._queue_name).find(self._wanted, limit=left)
            found += [Located(store.config.table, entry) for entry in entries]
        return found

    def ended(self, stores: Iterable[Store], *, dead_letters: bool, by_date: bool) -> list[Located]:
        """Entries that have ended, by descending id in each table, or newest first (`by_date`)."""
        found = list[Located]()
        for store in stores:
            entries = (
                dead_letter_entries(store, self._queue_name, self._wanted, self._limit)
                if dead_letters
                else History(store, self._queue_name).find(
                    self._wanted, limit=self._limit, newest_first=True
                )
            )
            found += [Located(store.config.table, entry) for entry in entries]
        if by_date:  # ids of different tables say nothing of when
            found.sort(key=lambda located: located.entry.finished_date or _FIRST, reverse=True)
        return found[: self._limit]


def dead_letter_entries(
    store: Store, queue_name: str | None, wanted: Filter, limit: int | None
) -> list[Entry]:
    """The dead letters of a queue, or of all (None), by `QueueStatus`; the newest id first."""
    among = _among(wanted, dead_letter_ids(store))
    return History(store, queue_name).find(among, limit=limit, newest_first=True)


def _among(wanted: Filter, ids: list[int]) -> Filter:
    """`wanted`, of these ids only."""
    both = ids if wanted.record_ids is None else sorted({*wanted.record_ids} & {*ids})
    return msgspec.structs.replace(wanted, record_ids=both)
