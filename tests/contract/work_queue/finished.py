"""Tasks that recur, finished as soon as they come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from work_queue.task import Task
from work_queue.work_queue import WorkQueue

MINUTE = timedelta(minutes=1)
NIGHT = "0 3 * * *"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def finish(work: WorkQueue, queue: str = "a") -> list[Any]:
    """The values of all that can be claimed, which is deleted."""
    return [task.value for task in finished(work, queue)]


def finished(work: WorkQueue, queue: str = "a") -> list[Task]:
    """All that can be claimed, which is deleted."""
    found = list[Task]()
    while (task := work.try_claim(queue)) is not None:
        found.append(task)
        work.modify(task.delete())
    return found


def date_of(task: Task) -> datetime:
    """The date of which the id of a task tells, a UUID of version 7."""
    return EPOCH + timedelta(milliseconds=UUID(task.id).int >> 80)
