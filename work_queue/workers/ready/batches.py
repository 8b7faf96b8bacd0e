"""A handler of many tasks at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from queue_core.runtime.arguments import function
from work_queue import checks
from work_queue.modification import Action
from work_queue.task import Task
from work_queue.values import UNREAD
from work_queue.work_queue import WorkQueue
from work_queue.workers.job import Job
from work_queue.workers.options import Written, actions_of


def in_batches(
    work: WorkQueue, handle: Callable[[Sequence[Task]], Written], *, limit: int = 100
) -> Callable[[Job], tuple[Action, ...]]:
    """Make a handler that takes many tasks of a queue at a time.

    Whenever the worker has claimed a task, the handler claims more of its queue, as many as are
    available. All of them are renewed together while `handle` runs. Then they are deleted, and what
    it returns is done, in one modification. If it raises, all are given back, and only the first
    one counts a failure.

    Args:
        work: The work queue of the worker.
        handle: Takes tasks, and returns an action, several, or None.
        limit: The most tasks at a time. Default: 100.

    Returns:
        A handler for `Worker`.

    Raises:
        ConfigurationError: `handle` is no function of one argument.
        InvalidRequestError: The limit is not allowed.
    """
    function(handle, key="handle", arguments=1)
    most = checks.limit(limit)

    def handler(job: Job) -> tuple[Action, ...]:
        others = _more(work, job.task, most - 1)
        job.hold(others)
        # One with a spoilt value is released. Its worker moves it away once it comes first.
        others = [other for other in others if other.value is not UNREAD]
        returned = actions_of(handle([job.task, *others]), handle)
        return (*returned, job.task.delete(), *(task.delete() for task in others))

    return handler


def _more(work: WorkQueue, task: Task, limit: int) -> list[Task]:
    if not limit:
        return []
    taken = work.claim_many(
        task.queue,
        limit=limit,
        claimant=task.claimant,
        lease_seconds=task.lease.total_seconds(),
        timeout_seconds=0,
    )
    # If the lease has ended meanwhile, the task itself is there again, at a newer version.
    return [other for other in taken if other.id != task.id]
