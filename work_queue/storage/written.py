"""The rows that a modification has written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sql.statements.work.counts import Count
from work_queue.document import Doc, DocSet
from work_queue.faults import Fault
from work_queue.storage.moment import Moment, minute_of
from work_queue.task import Task

Faults = dict[int, Fault]
"""What is at fault, by the place of the action."""


class WrittenTasks:
    """What was written of tasks, by the places of actions, and what follows from it."""

    def __init__(self) -> None:
        self.inserted = dict[int, Task]()
        self.changed = dict[int, Task]()
        self.existing = dict[int, Task]()
        """Tasks because of which inserts were left out."""
        self.faults = Faults()
        self.kept = defaultdict[str, int](int)
        """Tasks that went into history, by queue."""
        self.freed = set[str]()
        """Limited queues in which a task was claimed that is so no more."""
        self._counts = defaultdict[tuple[str, datetime | None], int](int)

    def end(self, row: Any, moment: Moment, after: Any = None) -> None:
        """Count a task that is no more, or that has become another row, `after`."""
        self.count(row, moment, -1)
        stays = after is not None and after.queue == row.queue and _is_claimed(after, moment)
        if row.is_limited and _is_claimed(row, moment) and not stays:
            self.freed.add(row.queue)

    def count(self, row: Any, moment: Moment, amount: int) -> None:
        """Count a task that is there now, or is no more."""
        self._counts[row.queue, None] += amount
        if row.arrival_date > moment.now and not row.claims:
            self._counts[row.queue, minute_of(row.arrival_date)] += amount

    def counts(self) -> Iterator[Count]:
        """What has changed in the numbers of tasks."""
        for (queue, minute), amount in self._counts.items():
            if amount:
                yield Count(queue, amount, minute)


class WrittenDocs:
    """What was written of docs, by the places of actions, and what follows from it."""

    def __init__(self) -> None:
        self.inserted = dict[int, Doc]()
        self.changed = dict[int, Doc]()
        self.sets = dict[int, DocSet]()
        self.faults = Faults()
        self._counts = defaultdict[str, int](int)

    def count(self, namespace: str, amount: int) -> None:
        """Count a doc that is there now, or is no more."""
        self._counts[namespace] += amount

    def counts(self) -> Iterator[Count]:
        """What has changed in the numbers of docs."""
        for namespace, amount in self._counts.items():
            if amount:
                yield Count(namespace, amount)


def _is_claimed(row: Any, moment: Moment) -> bool:
    return row.lease_date is not None and bool(row.lease_date > moment.now)
