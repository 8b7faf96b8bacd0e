"""Tasks that are claimed, and modifications that are refused."""

from __future__ import annotations

import pytest

from work_queue.faults import DependencyError, Fault
from work_queue.task import Task
from work_queue.work_queue import WorkQueue

HOUR = 3600.0


def claimed(work: WorkQueue, queue: str = "a", **options: object) -> Task:
    """A task that is there, and available."""
    task = work.try_claim(queue, **options)  # type: ignore[arg-type]
    assert task is not None
    return task


def faults(work: WorkQueue, *actions: object, **options: object) -> list[Fault]:
    """The faults for which a modification is refused."""
    with pytest.raises(DependencyError) as refused:
        work.modify(*actions, **options)  # type: ignore[arg-type]
    return list(refused.value.faults)
