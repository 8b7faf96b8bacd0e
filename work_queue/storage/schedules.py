"""The recurring schedules of queues on a database, as they are declared."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection

from queue_core.model.recurrence import Kind, Recurrence, parse
from queue_core.storage.transactions import Transactions
from work_queue.metrics import TABLE
from work_queue.requests import ScheduleSetting
from work_queue.schedule import TaskSchedule
from work_queue.storage.modifying import Statements
from work_queue.values import encode


class Schedules:
    """Each call runs in its own transaction: a caller's would hold up claims of the queue.

    `changed` is told of a queue whose schedules are others now.
    """

    def __init__(
        self,
        transactions: Transactions,
        statements: Statements,
        cap_bytes: int,
        changed: Callable[[str], None],
    ) -> None:
        self._transactions = transactions
        self._statements = statements
        self._cap_bytes = cap_bytes
        self._changed = changed

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

        row = self._transactions.write_raced(None, setting.queue, work)
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
