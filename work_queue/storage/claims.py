"""Claims of tasks: which queue is tried, and what is taken from it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection

from queue_core.storage.transactions import Transactions
from sql.statements.work.tasks import WorkTasks
from work_queue.metrics import Metrics
from work_queue.requests import ClaimRequest
from work_queue.storage.rows import task_of_values
from work_queue.task import Task


class Claims:
    """Takes tasks, each claim in a transaction of its own."""

    def __init__(self, transactions: Transactions, tasks: WorkTasks, metrics: Metrics) -> None:
        self._transactions = transactions
        self._tasks = tasks
        self._metrics = metrics
        self._at_once = transactions.database.dialect.capabilities.moves_at_once

    def take(self, request: ClaimRequest) -> list[Task]:
        """Claim from one of the queues that have an available task, drawn at random.

        So each queue gets its share of the claims, whatever its length.
        """
        ready = list(request.queues)
        if len(ready) > 1:
            now = self._transactions.now()
            first = self.first_arrivals(ready)
            ready = [queue for queue in ready if queue in first and first[queue] <= now]
            random.shuffle(ready)
        for queue in ready:
            if taken := self._take_from(queue, request):
                return taken
        return []

    def _take_from(self, queue: str, request: ClaimRequest) -> list[Task]:
        def work(connection: Connection) -> list[Sequence[object]]:
            now = self._transactions.clock.now()  # anew in each try: it may have waited
            claim = {
                "of_queue": queue,
                "limit": request.limit,
                "now": now,
                "until": now + timedelta(seconds=request.lease_seconds),
                "by": request.claimant,
            }
            return self._tasks.claim(connection, claim)

        self._transactions.keep_time()
        database = self._transactions.database
        rows = self._transactions.reaching(
            lambda: (
                database.write_autocommit(work, lambda _, taken: taken)
                if self._at_once
                else database.write(work)
            )
        )
        taken = [task_of_values(row) for row in rows]
        self._metrics.claimed(taken)
        return taken

    def first_arrivals(self, queues: Sequence[str]) -> dict[str, datetime]:
        """The first arrival in each of the queues that has a task, past or to come."""
        return dict(
            self._transactions.read(
                None,
                queues[0],
                lambda connection: self._tasks.first_arrivals(connection, queues),
            )
        )

    def give_back(self, taken: Sequence[Task]) -> None:
        """Undo a claim whose tasks nobody has seen."""
        named = [(task.id, task.version) for task in taken]
        now = self._transactions.now()
        self._transactions.write(
            None,
            taken[0].queue,
            lambda connection: self._tasks.give_back(connection, named, now),
        )
