"""A handler that makes tasks out of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from work_queue.modification import Insert
from work_queue.workers.job import Job
from work_queue.workers.options import plain_function


def map_to(
    queue: str, outputs: Callable[[Any], Iterable[Any]]
) -> Callable[[Job], tuple[Insert, ...]]:
    """Make a handler that turns the value of a task into values of new ones.

    The task is deleted and the new ones are inserted in one modification: each value is mapped
    once, however often its task runs.

    Args:
        queue: Where the new tasks go.
        outputs: Takes a value, and returns any number of values.

    Returns:
        A handler for `Worker`.

    Raises:
        ConfigurationError: `outputs` is no function of one argument, or a coroutine function.
    """
    plain_function(outputs, key="outputs")

    def handler(job: Job) -> tuple[Insert, ...]:
        return tuple(Insert(queue=queue, value=value) for value in outputs(job.task.value))

    return handler
