"""Recurring schedules: one firing per due time in the whole cluster, however many nodes run.

All nodes that serve the queue watch its schedules; the one that moves `last_due` on also inserts the notification, in
the same transaction. A key on the notification would not do, since it leaves the table when it is handled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Row
from sqlalchemy.exc import IntegrityError

from notifications.recurrence import Recurrence
from queue_core.config import Mode
from queue_core.engine import QueueEngine
from queue_core.entry import ANY_NODE, Posting
from queue_core.log import get_logger
from queue_core.loop import Loop
from sql import schedules

log = get_logger(__name__)


@dataclass(frozen=True)
class Schedule:
    """One recurring schedule as it stands. Dates in UTC; `next_due` is None when it never fires again."""

    queue_name: str
    name: str
    recurrence: Recurrence
    class_name: str
    last_due: datetime | None
    next_due: datetime | None


class Schedules:
    """The recurring schedules of one notification service; `queue_names` gives the queues that are started here."""

    def __init__(self, engine: QueueEngine, queue_names: Callable[[], Sequence[str]]) -> None:
        self._engine = engine
        self._store = engine.store
        self._table = engine.config.table
        self._queue_names = queue_names
        self._loop = Loop(f"{self._table}-schedules", self.turn, self._store.clock)

    def start(self) -> None:
        """Fire what is due, from now on."""
        self._loop.start()

    def stop(self) -> None:
        """Fire nothing more."""
        self._loop.stop()

    def wake(self) -> None:
        """Look at the schedules now."""
        self._loop.wake()

    def put(
        self,
        queue_name: str,
        name: str,
        recurrence: Recurrence,
        posting: Posting,
    ) -> Schedule:
        """Add a schedule, or change it if its rule or payload is another one; a new rule starts now.

        Every node may do this at its start: the same rule leaves the schedule, and where it stands, alone.
        """
        rule = msgspec.json.encode(recurrence.to_dict()).decode()
        values = {
            **self._store.payload_columns(posting),
            **self._store.key_columns(
                queue_name, search_key1=posting.search_key1, search_key2=posting.search_key2
            ),
        }
        now = self._store.clock.now()
        fresh = {"rule": rule, "last_due": None, "next_due": recurrence.next_after(None, now)}

        def work(connection: Connection) -> Row[Any]:
            row = schedules.find(connection, self._table, queue_name, name, lock=True)
            if row is None:
                key = {"table_name": self._table, "queue_name": queue_name, "name": name}
                schedules.add(connection, {**key, **values, **fresh})
            else:
                same = _recurrence(row) == recurrence
                schedules.change(
                    connection, self._table, queue_name, name, values if same else {**values, **fresh}
                )
            found = schedules.find(connection, self._table, queue_name, name)
            assert found is not None  # noqa: S101 -- written above, in this transaction
            return found

        try:
            row = self._store.database.write(work)
        except IntegrityError:  # another node added it between our look and our insert
            row = self._store.database.write(work)
        self.wake()
        return _schedule(row)

    def remove(self, queue_name: str, name: str) -> bool:
        """Remove a schedule; notifications that it has fired stay. False if there was none."""
        return self._store.database.write(
            lambda connection: schedules.remove(connection, self._table, queue_name, name)
        )

    def of(self, queue_name: str) -> list[Schedule]:
        """The schedules of a queue, by name."""
        rows = self._store.database.fetch(
            lambda connection: schedules.of_queues(connection, self._table, [queue_name])
        )
        return [_schedule(row) for row in rows]

    def turn(self) -> float:
        """Fire what is due. One turn; returns seconds until the next."""
        longest = self._store.config.poll_interval_seconds
        names = self._queue_names()
        if not names or not self._engine.lifecycle.running:
            return longest
        rows = self._store.database.fetch(
            lambda connection: schedules.of_queues(connection, self._table, names)
        )
        now = self._store.clock.now()
        for row in rows:
            if row.next_due is not None and row.next_due <= now:
                self._fire(row, now)
        coming = [row.next_due for row in rows if row.next_due is not None]
        if any(date <= now for date in coming):
            return 0.0
        left = (min(coming) - self._store.clock.now()).total_seconds() if coming else longest
        return max(0.0, min(longest, left))

    def _fire(self, row: Row[Any], now: datetime) -> None:
        """Insert the notifications of a schedule that is due, unless another node has."""
        recurrence = _recurrence(row)
        dates, next_due = recurrence.due(row.last_due, now)
        lifecycle = self._engine.lifecycle
        lane = ANY_NODE if self._store.config.mode is Mode.POLLING else lifecycle.name
        common = self._store.common_columns(row.queue_name, now, creator=lifecycle.name, lane=lane)
        payload = {
            name: getattr(row, name)
            for name in ("class_name", "event_json", "event_bytes", "codec", "search_key1", "search_key2")
        }

        def work(connection: Connection) -> bool:
            last_due = dates[-1] if dates else now
            if not schedules.advance(connection, row, last_due=last_due, next_due=next_due):
                return False
            self._store.insert(connection, [{**common, **payload, "effective_date": date} for date in dates])
            return True

        if self._store.database.write(work) and dates:
            log.info(
                "schedule_fired",
                queue_name=row.queue_name,
                schedule=row.name,
                due=dates[-1].isoformat(),
                firings=len(dates),
            )
            lifecycle.wake()


def _recurrence(row: Row[Any]) -> Recurrence:
    return Recurrence.from_dict(msgspec.json.decode(row.rule))


def _schedule(row: Row[Any]) -> Schedule:
    return Schedule(row.queue_name, row.name, _recurrence(row), row.class_name, row.last_due, row.next_due)
