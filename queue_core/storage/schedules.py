"""Recurring schedules in the database: where each stands, and the transaction that fires it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Row

from queue_core.model.lanes import Lane
from queue_core.runtime.callers import CallersConnection
from queue_core.storage.brief_waits import briefly
from queue_core.storage.store import Store
from sql.families import SCHEDULES


class StoredSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `queue_schedules`.

    Dates in UTC; `rule` is JSON, whose meaning is the notifications' own.
    """

    table_name: str
    queue_name: str
    name: str
    rule: str
    class_name: str
    event_json: str | None
    event_bytes: bytes | None
    codec: str
    search_key1: int | None
    search_key2: int | None
    last_due: datetime | None
    next_due: datetime | None
    headers: str | None


class ScheduleStore:
    """The schedules of one notification service."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._table = store.config.table
        schedules = store.database.dialect.statements_for(SCHEDULES)
        self._schedules = schedules(store.statements.main.schema)

    def of(
        self, queue_names: Sequence[str], callers: CallersConnection | None = None
    ) -> list[StoredSchedule]:
        """The schedules of some queues, by queue and name."""
        rows = self._store.read(
            callers,
            self._table,
            lambda connection: self._schedules.of_queues(connection, self._table, queue_names),
        )
        return [_stored(row) for row in rows]

    def put(
        self,
        queue_name: str,
        name: str,
        payload: Mapping[str, Any],
        fresh: Mapping[str, Any],
        *,
        going_on: Callable[[str], str | None],
        callers: CallersConnection | None = None,
    ) -> StoredSchedule:
        """Add a schedule with the columns `payload` and `fresh`, or change it.

        A schedule that is there gets `fresh` only if its dates are others. If they are not,
        `going_on` gives the rule in place of that which is stored. In the caller's transaction, an
        IntegrityError says that another node has added it meanwhile.
        """

        def work(connection: Connection) -> StoredSchedule:
            row = self._schedules.find(connection, self._table, queue_name, name, lock=True)
            if row is None:
                key: dict[str, Any] = {
                    "table_name": self._table,
                    "queue_name": queue_name,
                    "name": name,
                }
                self._schedules.add(connection, {**key, **payload, **fresh})
                return StoredSchedule(**key, **payload, **fresh)
            rule = going_on(row.rule)
            changes = {**payload, **(fresh if rule is None else {"rule": rule})}
            self._schedules.change(connection, self._table, queue_name, name, changes)
            return msgspec.structs.replace(_stored(row), **changes)

        return self._store.write_raced(callers, queue_name, work)

    def remove(self, queue_name: str, name: str, callers: CallersConnection | None = None) -> bool:
        """Remove a schedule; False if there was none."""
        return self._store.write(
            callers,
            queue_name,
            lambda connection: self._schedules.remove(connection, self._table, queue_name, name),
        )

    def fire(
        self,
        schedule: StoredSchedule,
        dates: Sequence[datetime],
        *,
        last_due: datetime,
        next_due: datetime | None,
        creator: str,
        lane: Lane,
        lock_seconds: float | None = None,
    ) -> bool:
        """Insert a notification for each of `dates` and move the schedule on, both or neither.

        With `lock_seconds` it waits no longer for a lock, and raises LockRefusedError. False if
        another node has moved it on, or somebody has changed it: nothing was inserted.
        """
        store, now = self._store, self._store.clock.now()
        common = store.rows.common(schedule.queue_name, now, creator=creator, lane=lane)
        columns = (
            "class_name",
            "event_json",
            "event_bytes",
            "codec",
            "search_key1",
            "search_key2",
            "headers",
        )
        payload = {name: getattr(schedule, name) for name in columns}
        rows = [{**common, **payload, "effective_date": date} for date in dates]

        def work(connection: Connection) -> bool:
            key = self._table, schedule.queue_name, schedule.name
            row = self._schedules.find(connection, *key, lock=True)
            if row is None or _stored(row) != schedule:
                return False
            self._schedules.change(connection, *key, {"last_due": last_due, "next_due": next_due})
            store.insert(connection, rows)
            return True

        brief = (
            work if lock_seconds is None else briefly(store.database.dialect, work, lock_seconds)
        )
        return store.write(None, schedule.queue_name, brief)


def _stored(row: Row[Any]) -> StoredSchedule:
    return StoredSchedule(**row._mapping)  # noqa: SLF001 -- the public name of a row's columns in SQLAlchemy
