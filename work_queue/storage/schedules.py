"""The recurring schedules of queues on a database: whoever claims inserts what is due.

The transaction that inserts locks the rows of the due schedules, and moves them on. So each date
has one task, however many claim at once and whoever dies, and a claim that comes second finds
nothing due. The id of a task follows from its schedule and date: none comes twice, even if somebody
sets a clock or a row back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from queue_core.errors import PayloadNotDecodableError
from queue_core.model.recurrence import Kind, Recurrence, parse
from queue_core.runtime.log import get_logger
from queue_core.storage.transactions import Transactions
from work_queue.metrics import TABLE
from work_queue.modification import Insert
from work_queue.requests import ScheduleSetting
from work_queue.schedule import TaskSchedule
from work_queue.storage.modifying import Modification, Statements
from work_queue.storage.moment import Moment
from work_queue.task import NOBODY
from work_queue.values import decode, encode

log = get_logger(__name__)

FIRED_BYTES = 16_000_000
"""Values that one transaction inserts for one schedule: other claims insert the rest.

It bounds the memory of a claim that makes up for many dates. No benchmark chose it.
"""
NO_CAP = sys.maxsize
"""What is stored was within the cap of whoever declared it."""


class Schedules:
    """Each call runs in its own transaction: a caller's would hold up claims of the queue.

    `inserted` is told of each modification that inserts what is due, `changed` of a queue whose
    schedules are others now.
    """

    def __init__(
        self,
        transactions: Transactions,
        statements: Statements,
        cap_bytes: int,
        *,
        inserted: Callable[[Modification], None],
        changed: Callable[[str], None],
    ) -> None:
        self._transactions = transactions
        self._statements = statements
        self._cap_bytes = cap_bytes
        self._inserted = inserted
        self._changed = changed
        self._unreadable = set[tuple[str, str, str]]()

    # -- what is declared -------------------------------------------------------------------------

    def set(self, setting: ScheduleSetting) -> TaskSchedule:
        """See `Backend.set_schedule`."""
        schedules, now = self._statements.schedules, self._transactions.now()
        rule = parse(
            setting.cron, setting.every, setting.timezone, start=now, missed=setting.missed
        )
        text, data = encode(setting.value, self._cap_bytes, what="recur: the value")
        value = {"value_json": text, "value_bytes": data}
        fresh = {
            "rule": rule.to_text(),
            "last_due": None,
            "next_due": rule.next_after(None, now),
            "last_task_id": None,
        }
        key = {"queue": setting.queue, "name": setting.name}

        def work(connection: Connection) -> Any:
            row = schedules.find(connection, **key)
            if row is None:
                schedules.add(connection, key | value | fresh)
                return SimpleNamespace(**key, **fresh)
            stored = rule.going_on_from(row.rule)
            changes = value | (fresh if stored is None else {"rule": stored})
            schedules.change(connection, **key, values=changes)
            return SimpleNamespace(**{**row._asdict(), **changes})

        try:
            row = self._transactions.write(None, setting.queue, work)
        except IntegrityError:  # another one added it between our look and our insert
            row = self._transactions.write(None, setting.queue, work)
        self._changed(setting.queue)
        return _schedule(row, rule)

    def remove(self, queue: str, name: str) -> bool:
        """See `Backend.remove_schedule`."""
        return self._transactions.write(
            None,
            queue,
            lambda connection: self._statements.schedules.remove(connection, queue, name),
        )

    def read(self, queues: tuple[str, ...]) -> list[TaskSchedule]:
        """See `Backend.schedules`."""
        rows = self._transactions.read(
            None, TABLE, lambda connection: self._statements.schedules.of(connection, queues)
        )
        return [
            _schedule(row, rule) for row in rows if (rule := Recurrence.read(row.rule)) is not None
        ]

    # -- what is due ------------------------------------------------------------------------------

    def insert_due(self, queue: str) -> bool:
        """Insert the tasks of a queue whose dates have passed, unless another claim does.

        False if there is none: a schedule that can't be read stays due.
        """
        unreadable, inserts = list[Any](), list[Insert]()

        def work(connection: Connection) -> Modification:
            now = self._transactions.clock.now()  # anew in each try: it may have waited
            unreadable.clear()
            inserts.clear()
            moved = dict[str, dict[str, Any]]()
            for row in self._statements.schedules.due(connection, queue, now):
                firing = _firing(row, now)
                if firing is None:
                    unreadable.append(row)
                else:
                    inserts.extend(firing[0])
                    moved[row.name] = firing[1]
            modification = Modification(inserts, NO_CAP)
            if inserts:
                modification.run(connection, self._statements, Moment(now, NOBODY))
            for name, values in moved.items():
                self._statements.schedules.change(connection, queue, name, values)
            return modification

        self._inserted(self._transactions.write(None, queue, work))
        for row in unreadable:
            self._note(row)
        return bool(inserts) or not unreadable

    def _note(self, row: Any) -> None:
        """Log an unreadable schedule once."""
        if (known := (row.queue, row.name, row.rule)) not in self._unreadable:
            self._unreadable.add(known)
            log.error("schedule_unreadable", queue_name=row.queue, schedule=row.name)


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
            id=_id(row.queue, row.name, date),
            skip_existing=True,
        )
        for date in dates
    ]
    moved: dict[str, Any] = {"next_due": next_due}
    if inserts:
        moved |= {"last_due": dates[-1], "last_task_id": inserts[-1].id}
    return inserts, moved


def _id(queue: str, name: str, date: datetime) -> str:
    """The id of the task of a date. Neither a queue nor a name holds a NUL character."""
    schedule = blake2b(f"{queue}\0{name}".encode(), digest_size=8).hexdigest()
    return f"{schedule}@{date.isoformat()}"


def _schedule(row: Any, rule: Recurrence) -> TaskSchedule:
    is_cron = rule.kind is Kind.CRON
    return TaskSchedule(
        queue=row.queue,
        name=row.name,
        cron=rule.expression if is_cron else None,
        every=None if is_cron else timedelta(seconds=float(rule.expression)),
        timezone=rule.timezone,
        missed=rule.missed,
        last_due=row.last_due,
        last_task_id=row.last_task_id,
        next_due=row.next_due,
    )
