"""Handlers of the workers' tests, and their runs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from work_queue.faults import DependencyError
from work_queue.modification import Action
from work_queue.task import Task
from work_queue.work_queue import WorkQueue
from work_queue.workers.job import Job
from work_queue.workers.worker import Worker

SHORT = 0.9
"""A lease whose renewal a test can wait for."""
Start = Callable[..., "Future[None]"]


def raises(error: BaseException) -> Callable[[Job], None]:
    def handle(_job: Job) -> None:
        raise error

    return handle


def end_elsewhere(work: WorkQueue, task: Task, ends: Callable[[Task], Action]) -> None:
    """Let somebody else end a task that a worker holds, and may renew at any moment."""
    while True:
        [newest] = work.tasks(ids=[task.id])
        try:
            work.modify(ends(newest), claimant=newest.claimant)
        except DependencyError:  # a renewal was faster
            continue
        return


def taken(task: Task) -> Action:
    """Moves a task to a queue that no worker of the tests knows."""
    return task.change(queue="taken")


def ran(work: WorkQueue, error: BaseException, **options: Any) -> Task:
    """Insert a task, run it once with a handler that raises, and return what it is then."""
    task = work.insert("a", 1)
    Worker(work, raises(error), "a", **options).run(limit=1, until_empty=True)
    return work.tasks(ids=[task.id])[0]
