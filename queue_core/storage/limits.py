"""The limits of one main table, as they are stored."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Connection, Row

from queue_core.model.lanes import AFTER_LIMITED, LIMITED, Lane, limited_lane
from queue_core.model.limit import Limit
from queue_core.storage.store import Store
from sql.families import LIMITS


class StoredLimits:
    """Reads and changes, each in a transaction of its own.

    A caller's would hold up all claims of the queue until its end.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._table = store.config.table
        limits = store.database.dialect.statements_for(LIMITS)
        self._limits = limits(store.statements.main.schema)

    def put(self, limit: Limit) -> None:
        """Add a limit, or replace that of its queue."""
        rated, keys_rated = limit.rate is not None, limit.rate_per_key is not None
        columns = {
            "queue_name": limit.queue_name,
            "concurrency": limit.concurrency,
            "per_node": limit.per_node,
            "rate": limit.rate,
            "per_microseconds": limit.per // timedelta(microseconds=1)
            if rated or keys_rated
            else None,
            "burst": limit.burst if rated else None,
            "per_key": limit.per_key,
            "rate_per_key": limit.rate_per_key,
            "burst_per_key": limit.burst_per_key if keys_rated else None,
            "limited_by": limit.limited_by,
            "since": limit.since,
        }

        def work(connection: Connection) -> None:
            self._limits.put(connection, self._table, limit.lane, columns)
            statements = self._store.statements
            if statements.lock_reserves(connection, lane=limit.lane):
                # They were reserved by other terms. The next claims go by these.
                statements.list_all(connection, lane=limit.lane, due_by=self._store.claims_due_by)

        self._store.write_raced(None, limit.queue_name, work)

    def remove(self, queue_name: str) -> bool:
        """Remove a limit; False if there is none."""
        lane = limited_lane(queue_name)
        return self._store.write(
            None,
            queue_name,
            lambda connection: self._limits.remove(connection, self._table, lane),
        )

    def all(self, connection: Connection) -> list[Limit]:
        """The limits of the table, by queue."""
        found = map(_limit, self._limits.of_table(connection, self._table))
        return sorted(found, key=lambda limit: limit.queue_name)

    def arrival(self, connection: Connection, limit: Limit) -> datetime | None:
        """From when on the rate of a queue's limit counts; None if nothing has started yet."""
        rows = self._limits.of_table(connection, self._table)
        return next((row.arrival_date for row in rows if row.lane == limit.lane), None)

    def in_force(self, queue_name: str | None = None) -> list[Limit]:
        """The limits of this queue or of all (None)."""
        found = self._store.read(None, queue_name or self._table, self.all)
        return [limit for limit in found if queue_name in {None, limit.queue_name}]

    def all_and_lanes(self, connection: Connection) -> tuple[list[Limit], list[Lane]]:
        """The limits, and the lanes in which entries wait for a place."""
        lanes = self._store.statements.lanes_between(connection, LIMITED, AFTER_LIMITED)
        return self.all(connection), [Lane(lane) for lane in lanes]


def _limit(row: Row[Any]) -> Limit:
    limit = Limit(
        table=row.table_name,
        queue_name=row.queue_name,
        concurrency=row.concurrency,
        per_node=row.per_node,
        per_key=row.per_key,
        limited_by=row.limited_by,
        since=row.since,
    )
    rates = dict[str, Any]()
    if row.per_microseconds is not None:
        rates["per"] = timedelta(microseconds=row.per_microseconds)
    if row.rate is not None:
        rates |= {"rate": row.rate, "burst": row.burst}
    if row.rate_per_key is not None:
        rates |= {"rate_per_key": row.rate_per_key, "burst_per_key": row.burst_per_key}
    return msgspec.structs.replace(limit, **rates)
