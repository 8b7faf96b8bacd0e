"""A handler of many tasks at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from work_queue import checks
from work_queue.modification import Action, NamesTask
from work_queue.task import Task
from work_queue.values import UNREAD
from work_queue.workers.job import Job
from work_queue.workers.options import Written, actions_of, plain_function


def in_batches(
    handle: Callable[[Sequence[Task]], Written], *, limit: int = 100
) -> Callable[[Job], tuple[Action, ...]]:
    """Make a handler that takes many tasks of a queue at a time.

    Whenever the worker has claimed a task, the handler claims more of its queue, as many as are
    available. All of them are renewed together while `handle` runs. What it returns is done in one
    modification, which deletes all tasks that no action of it names. If it raises, all are given
    back, and only the first one counts a failure.

    A task that was claimed before, without an end to its run, may have killed its worker. So it
    runs alone, and the others' claims don't rise with it.

    Args:
        handle: Takes tasks, and returns an action, several, or None. No coroutine function.
        limit: The most tasks at a time. Default: 100.

    Returns:
        A handler for `Worker`.

    Raises:
        ConfigurationError: `handle` is no function of one argument, or a coroutine function.
        InvalidRequestError: The limit is not allowed.
    """
    plain_function(handle, key="handle")
    most = checks.limit(limit)

    def handler(job: Job) -> tuple[Action, ...]:
        batch = [job.task]
        if most > 1 and _may_share(job.task):
            # The rest is given back when the batch ends, and its claims are not counted.
            batch += filter(_may_share, job.claim_more(limit=most - 1))
        returned = actions_of(handle(batch), handle)
        named = {action.task.id for action in returned if isinstance(action, NamesTask)}
        return (*returned, *(task.delete() for task in batch if task.id not in named))

    return handler


def _may_share(task: Task) -> bool:
    """Whether it neither may have ended a worker before, nor has a value that can't be read."""
    return task.claims == 1 and task.value is not UNREAD
