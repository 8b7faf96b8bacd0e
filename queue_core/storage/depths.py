"""The depth of each queue: entries that wait in the table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection

from queue_core.model.lanes import PARKED
from queue_core.storage.store import Store

COUNT_LIMIT = 10_000
"""Entries that one look at the depths reads. Each lane gets its share, and at least a tenth."""


@dataclass
class Depth:
    """The entries that wait in the table for one queue.

    `oldest_age_seconds`: of the ready entries; 0 if there are none.
    """

    ready: int = 0
    oldest_age_seconds: float = 0.0
    parked: int = 0


def depths_of(store: Store, queue_names: Iterable[str] = ()) -> dict[str, Depth]:
    """The entries that wait in the table, by queue name.

    `queue_names` are included even if nothing waits for them. About `COUNT_LIMIT` entries are read
    at most.
    """
    statements, now = store.statements, store.clock.now()

    def work(connection: Connection) -> dict[str, Depth]:
        depths = {name: Depth() for name in queue_names}
        lanes = statements.lanes(connection)
        limit = max(COUNT_LIMIT // 10, COUNT_LIMIT // max(1, len(lanes)))
        for lane in lanes:
            until = None if lane == PARKED else now
            for row in statements.lane_counts(connection, lane=lane, until=until, limit=limit):
                depth = depths.setdefault(row.queue_name, Depth())
                if lane == PARKED:
                    depth.parked += row.entries
                else:
                    depth.ready += row.entries
                    age = (now - row.oldest).total_seconds()
                    depth.oldest_age_seconds = max(depth.oldest_age_seconds, age)
        return depths

    return store.database.fetch(work)
