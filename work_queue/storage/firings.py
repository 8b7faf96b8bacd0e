"""The tasks of recurring schedules: each claim from a queue inserts its due tasks.

The transaction that inserts locks the rows of the due schedules, and moves them on. So each date
has one task, however many claim at once and whoever dies, and a claim that comes second finds
nothing due. The id of a task follows from its schedule and date: as long as it is there, it does
not come again, even if somebody sets a clock or a row back.

A schedule whose task can't be inserted stays where it is, and is tried again later. Meanwhile
claims take the other tasks of its queue.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from queue_core.errors import PayloadError, PayloadNotDecodableError
from queue_core.model.recurrence import Recurrence
from queue_core.runtime.log import get_logger
from queue_core.storage.brief_waits import LockRefusedError, briefly
from queue_core.storage.put_off_schedules import (
    LOCK_SECONDS,
    PutOffSchedules,
    failed_firing,
    told_of,
)
from queue_core.storage.transactions import Transactions
from work_queue.metrics import TABLE
from work_queue.modification import Insert
from work_queue.storage.ids import id_of_date
from work_queue.storage.modifying import Modification, Statements
from work_queue.storage.moment import Moment
from work_queue.task import NOBODY
from work_queue.values import decode

log = get_logger(__name__)

FIRED_BYTES = 16_000_000
"""Values that one transaction inserts for one schedule: other claims insert the rest.

It bounds the memory of a claim that makes up for many dates. No benchmark chose it.
"""
NO_CAP = sys.maxsize
"""The stored value was within the cap of its declaration."""
MOST_FAILURES = 3
"""Schedules that may fail in one claim; other claims meet the others."""


class Firings:
    """`inserted` is told of each modification that inserts due tasks."""

    def __init__(
        self,
        transactions: Transactions,
        statements: Statements,
        inserted: Callable[[Modification], None],
    ) -> None:
        self._transactions = transactions
        self._statements = statements
        self._inserted = inserted
        self._failed = PutOffSchedules(transactions.clock)
        self.retry = self._failed.try_again
        """Try the schedules of a queue at the next claim, whatever has failed."""

    def insert_due(self, queue: str) -> datetime:
        """Insert the tasks of a queue whose dates have passed, unless another claim does.

        Returns when to look at it again: now, or, if nothing was inserted as schedules are put
        off, at the next date or try.
        """
        now, schedules = self._transactions.clock.now(), self._statements.schedules
        dates = dict(
            self._transactions.read(
                None, TABLE, lambda connection: schedules.dates(connection, queue)
            )
        )
        failed = self._failed.put_off_of(queue)
        ready = [n for n, date in dates.items() if date <= now and failed.get(n, 0.0) <= 0]
        together = not failed.keys() & set(ready)
        fired = bool(ready) and self._insert(queue, ready, together=together)
        tries = {
            name: now + timedelta(seconds=seconds)
            for name, seconds in self._failed.put_off_of(queue).items()
            if name in dates
        }
        if fired or not tries:
            return now
        # Its own date hides those of the others from whoever asks what comes first.
        return min((dates | tries).values())

    def _insert(self, queue: str, names: Sequence[str], *, together: bool) -> bool:
        """Insert the tasks of due schedules: of all `together`, or else of each that can be."""
        if together and self._fire(queue, names) is None:
            return True
        tries = failures = 0
        for name in names:
            error = self._fire(queue, [name], lock_seconds=LOCK_SECONDS)
            tries += 1
            if error is not None:
                self._put_off(queue, name, "schedule_failed", **told_of(error))
                failures += 1
            if failures == MOST_FAILURES:
                break
        return tries > failures

    def _fire(
        self, queue: str, names: Sequence[str], lock_seconds: float | None = None
    ) -> BaseException | None:
        """Insert the tasks of schedules that are due, in one transaction; returns its error.

        With `lock_seconds` it waits no longer for a lock.
        """
        database, unreadable = self._transactions.database, list[str]()

        def work(connection: Connection) -> Modification:
            unreadable.clear()
            return self._fired(connection, queue, names, unreadable)

        brief = work if lock_seconds is None else briefly(database.dialect, work, lock_seconds)
        try:
            self._inserted(self._transactions.write(None, queue, brief))
        except (LockRefusedError, SQLAlchemyError, PayloadError) as error:
            return failed_firing(database, error)
        self._failed.try_again(queue, set(names).difference(unreadable))
        for name in unreadable:
            self._put_off(queue, name, "schedule_unreadable")
        return None

    def _fired(
        self, connection: Connection, queue: str, names: Sequence[str], unreadable: list[str]
    ) -> Modification:
        """What was inserted in the transaction of `connection`; notes what is `unreadable`."""
        now, schedules = self._transactions.clock.now(), self._statements.schedules
        inserts, moved = list[Insert](), dict[str, dict[str, Any]]()
        for row in schedules.due(connection, queue, names, now):
            firing = _firing(row, now)
            if firing is None:
                unreadable.append(row.name)
            else:
                inserts.extend(firing[0])
                moved[row.name] = firing[1]
        modification = Modification(inserts, NO_CAP)
        if inserts:
            modification.run(connection, self._statements, Moment(now, NOBODY))
        for name, values in moved.items():
            schedules.change(connection, queue, name, values)
        return modification

    def _put_off(self, queue: str, name: str, event: str, **facts: object) -> None:
        seconds = self._failed.put_off(queue, name)
        log.error(event, queue_name=queue, schedule=name, **facts, pause_seconds=seconds)


def _firing(row: Any, now: datetime) -> tuple[list[Insert], dict[str, Any]] | None:
    """What a due schedule inserts, and the columns that move it on; None if it can't be read."""
    rule = Recurrence.read(row.rule)
    due = None if rule is None else rule.due_in_calendar(row.last_due, now)
    if due is None:
        return None
    try:
        value = decode(row.value_json, row.value_bytes)
    except PayloadNotDecodableError:
        return None
    dates, next_due = due
    size = len(row.value_json or row.value_bytes or b"")
    most = max(1, FIRED_BYTES // max(1, size))
    if len(dates) > most:
        dates, next_due = dates[:most], dates[most]
    inserts = [
        Insert(
            queue=row.queue,
            value=value,
            at=date,
            id=id_of_date(date, row.queue, row.name),
            skip_existing=True,
        )
        for date in dates
    ]
    moved: dict[str, Any] = {"next_due": next_due}
    if inserts:
        moved |= {"last_due": dates[-1], "last_task_id": inserts[-1].id}
    return inserts, moved
