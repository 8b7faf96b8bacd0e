"""The depths of a table: entries that wait, counted as far as a scrape of metrics may cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from sqlalchemy import Connection

from queue_core.model.lanes import AFTER_KEYED, KEYED, PARKED, is_keyed, is_limited, is_paused
from queue_core.storage.store import Store

COUNT_LIMIT = 10_000
"""Entries that one look reads, or a tenth of it a lane if there are many lanes."""


class QueueDepth(msgspec.Struct, kw_only=True):
    """The waiting entries of one queue of one table, counted up to some 10,000 of the table.

    Attributes:
        table: The main table.
        queue_name: The bus, or `service:queue`.
        ready: Entries that are due and not running.
        oldest_age_seconds: The time since the oldest of these was due; 0 if there is none.
        limited: Those of the ready ones that wait for a place of a limit: of their queue, or of
            their limit key.
        parked: Entries whose type or queue no node has known.
        paused: Entries that wait for the end of a pause, or for a circuit to be closed.
    """

    table: str
    queue_name: str
    ready: int = 0
    oldest_age_seconds: float = 0.0
    limited: int = 0
    parked: int = 0
    paused: int = 0


def depths(store: Store, queue_names: Iterable[str] = ()) -> list[QueueDepth]:
    """The depths of a table's queues, by name; of `queue_names` also if nothing waits for them."""
    found = store.database.fetch(_depths_of(store, queue_names))
    return [found[name] for name in sorted(found)]


class TableBacklogs:
    """The depths of the queues of one table, as handlers ask for them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def size(self, queue_name: str, connection: Connection | None = None) -> int:
        """See `running.subscriber.Backlogs`."""
        work = _depths_of(self._store, [queue_name])
        if connection is not None:
            return work(connection)[queue_name].ready
        found = self._store.reaching(lambda: self._store.database.fetch(work))
        return found[queue_name].ready


def _depths_of(
    store: Store, queue_names: Iterable[str]
) -> Callable[[Connection], dict[str, QueueDepth]]:
    now, table = store.clock.now(), store.config.table

    def work(connection: Connection) -> dict[str, QueueDepth]:
        found = {name: QueueDepth(table=table, queue_name=name) for name in queue_names}
        lanes = store.statements.lanes(connection, besides=(KEYED, AFTER_KEYED))
        limit = max(COUNT_LIMIT // 10, COUNT_LIMIT // max(1, len(lanes)))
        for lane in (*lanes, KEYED):
            end = AFTER_KEYED if lane == KEYED else None
            until = None if lane == PARKED or is_paused(lane) else now
            for row in store.statements.lane_counts(
                connection, lane=lane, until=until, limit=limit, end=end
            ):
                depth = found.setdefault(
                    row.queue_name, QueueDepth(table=table, queue_name=row.queue_name)
                )
                if lane == PARKED:
                    depth.parked += row.entries
                elif is_paused(lane):
                    depth.paused += row.entries
                else:
                    depth.ready += row.entries
                    depth.limited += row.entries if is_limited(lane) or is_keyed(lane) else 0
                    age = (now - row.oldest).total_seconds()
                    depth.oldest_age_seconds = max(depth.oldest_age_seconds, age)
        return found

    return work
