"""Requests that a handler raises: what becomes of its task, or of the worker."""

from __future__ import annotations

from work_queue import checks


class MoveTask(Exception):
    """Raised by a handler: the task goes to another queue, ready at once, with the reason as `err`.

    Args:
        queue: That queue. If the task is there already, it comes back in a minute.
        reason: Why. Default: a text that says who asked for it.

    Raises:
        InvalidRequestError: The queue's name is not allowed.
    """

    def __init__(self, queue: str, reason: str = "") -> None:
        super().__init__(queue, reason)
        self.queue = checks.queue(queue)
        self.reason = str(reason)  # somebody gives the exception itself

    def __str__(self) -> str:
        return self.reason or "the handler asked for it"


class StopWorker(Exception):
    """Raised by a handler: the task is given back, with its doc sets, ready at once.

    It keeps its `attempt` and `err`, and its `claims` start at 0, however many there were. The
    worker claims nothing more, and its `run` returns when all handlers have ended.
    """


class FailWorker(Exception):
    """Raised by a handler: the worker's `run` raises it.

    The task stays as it is until its lease ends. Other handlers have the worker's `grace_seconds`
    to end. `SystemExit` and `KeyboardInterrupt` do the same.
    """
