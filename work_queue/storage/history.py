"""The history of tasks on a database: which queues keep it, reads, and deletion."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from queue_core.storage.transactions import Transactions
from sql.statements.work.history import WorkHistory
from work_queue.finished_task import FinishedTask, KeptHistory
from work_queue.metrics import TABLE
from work_queue.requests import HistoryDeletion, HistoryQuery, HistorySetting
from work_queue.storage.rows import finished_of


class Histories:
    """Each call runs in its own transaction, or in a caller's."""

    def __init__(self, transactions: Transactions, statements: WorkHistory) -> None:
        self._transactions = transactions
        self._statements = statements

    def set(self, setting: HistorySetting, callers: Any) -> None:
        """See `Backend.set_history`."""
        now, queue = self._transactions.now(callers), setting.queue

        def work(connection: Connection) -> None:
            if setting.keep:
                self._statements.keep(connection, queue, now)
            else:
                self._statements.end(connection, queue)

        self._transactions.write(callers, queue, work)

    def kept(self) -> list[KeptHistory]:
        """See `Backend.histories`."""
        rows = self._transactions.read(None, TABLE, self._statements.queues)
        return [KeptHistory(queue, since) for queue, since in rows]

    def finished(self, query: HistoryQuery, callers: Any) -> list[FinishedTask]:
        """See `Backend.finished_tasks`."""
        rows = self._transactions.read(
            callers,
            query.queue or TABLE,
            lambda connection: self._statements.finished(
                connection,
                queue=query.queue,
                ids=query.ids,
                since=query.since,
                before=query.before,
                limit=query.limit,
                values=query.with_values,
            ),
        )
        return [finished_of(row, has_value=query.with_values) for row in rows]

    def delete(self, deletion: HistoryDeletion) -> int:
        """See `Backend.delete_history`."""
        return self._transactions.write(
            None,
            deletion.queue,
            lambda connection: self._statements.delete_oldest(
                connection, deletion.queue, before=deletion.before, limit=deletion.limit
            ),
        )
