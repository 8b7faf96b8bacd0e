"""The limits of queues on a database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection

from queue_core.model.rate import ONE_SECOND
from queue_core.storage.transactions import Transactions
from sql.statements.work.limits import WorkLimits
from work_queue.limit import QueueLimit
from work_queue.metrics import TABLE
from work_queue.requests import LimitSetting

_MICROSECOND = timedelta(microseconds=1)


class Limits:
    """Each call runs in its own transaction: a caller's would hold up all claims of the queue.

    `changed` is told of a queue whose limit is another one now.
    """

    def __init__(
        self,
        transactions: Transactions,
        statements: WorkLimits,
        changed: Callable[[str], None],
    ) -> None:
        self._transactions = transactions
        self._statements = statements
        self._changed = changed

    def set(self, setting: LimitSetting) -> QueueLimit:
        """See `Backend.set_limit`."""
        queue, rated = setting.queue, setting.rate is not None
        columns = {
            "concurrency": setting.concurrency,
            "rate": setting.rate,
            "per_microseconds": setting.per // _MICROSECOND if rated else None,
            "burst": setting.burst if rated else None,
            "limited_by": setting.by,
            "since": self._transactions.now(),
        }

        def work(connection: Connection) -> None:
            self._statements.put(connection, queue, columns)

        self._transactions.write_raced(None, queue, work)
        self._changed(queue)
        return _limit(SimpleNamespace(queue=queue, **columns))

    def remove(self, queue: str) -> bool:
        """See `Backend.remove_limit`."""
        removed = self._transactions.write(
            None, queue, lambda connection: self._statements.remove(connection, queue)
        )
        self._changed(queue)
        return removed

    def read(self, queues: tuple[str, ...]) -> list[QueueLimit]:
        """See `Backend.limits`."""
        rows = self._transactions.read(None, TABLE, self._statements.all)
        return [_limit(row) for row in rows if not queues or row.queue in queues]


def _limit(row: Any) -> QueueLimit:
    rated = row.rate is not None
    return QueueLimit(
        queue=row.queue,
        concurrency=row.concurrency,
        rate=row.rate,
        per=row.per_microseconds * _MICROSECOND if rated else ONE_SECOND,
        burst=row.burst if rated else 1,
        limited_by=row.limited_by,
        since=row.since,
    )
