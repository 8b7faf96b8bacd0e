"""What a receiver or a program has answered, as a new task."""

from __future__ import annotations

from queue_core.errors import PayloadTooLargeError
from queue_core.model.retry import GiveUp
from work_queue.modification import Insert
from work_queue.values import encode
from work_queue.work_queue import MAX_VALUE_BYTES

LONGEST_BYTES = MAX_VALUE_BYTES
"""Of an answer that is to be a task: the longest value that a work queue takes by default."""


def result(queue: str, value: object, *, said: str, actor: str) -> Insert:
    """The new task. Raises GiveUp if the value is too long: who has acted would do so again."""
    try:
        encode(value, LONGEST_BYTES, what="the answer")
    except PayloadTooLargeError:
        raise too_long(said, actor) from None
    return Insert(queue=queue, value=value)


def too_long(said: str, actor: str) -> GiveUp:
    """For an answer that no task can hold. `said`: who has said it, and how."""
    return GiveUp(
        f"{said} more than a task can hold, which is {LONGEST_BYTES} bytes. {actor} has acted on "
        "the task"
    )
