"""The fate of a task after a failed run."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from queue_core.model.outcome import describe
from queue_core.model.retry import Failure, GiveUp, RetryLater, decide
from work_queue.modification import Change
from work_queue.task import Task
from work_queue.values import UNREAD
from work_queue.workers.options import Options
from work_queue.workers.requests import MoveTask

IMPOSSIBLE_SECONDS = 60.0
"""How long a task is put off that can't be moved where it has to go, or that is there already."""


def after_failure(task: Task, error: BaseException, options: Options, run_seconds: float) -> Change:
    """The change that runs the task again later, or moves it to another queue.

    Args:
        task: As it was claimed.
        error: What the handler raised.
        options: The worker's.
        run_seconds: The time since the claim.
    """
    attempt = task.attempt + 1
    delay: timedelta | float | None
    if isinstance(error, MoveTask):
        queue = None if error.queue == task.queue else error.queue
        delay = None if queue else IMPOSSIBLE_SECONDS
    else:
        delay = _delay(task, error, options, run_seconds)
        queue = options.error_queue_of(task.queue) if delay is None else None
    return without_value(task).change(
        queue=queue, delay=delay, attempt=attempt, err=err_of(error), reset_claims=True
    )


def _delay(
    task: Task, error: BaseException, options: Options, run_seconds: float
) -> timedelta | None:
    """Until the next run; None: there is none."""
    attempt, now = task.attempt + 1, task.modified + timedelta(seconds=run_seconds)
    if options.max_attempts is not None and attempt >= options.max_attempts:
        return None
    date = decide(
        options.retry,
        Failure(error=error, error_count=attempt, effective_date=task.modified, now=now),
    )
    return None if date is None else max(date - now, timedelta())


def after_claims(task: Task, options: Options) -> Change:
    """The change that moves a task that was claimed too often."""
    return without_value(task).change(
        queue=options.error_queue_of(task.queue),
        attempt=task.attempt + 1,
        err=f"claimed {task.claims} times, and none of the last {options.max_claims} claims led to "
        "an end",
        reset_claims=True,
    )


def without_value(task: Task) -> Task:
    """The task whose changes leave its value as it is stored.

    So a value that is longer than its worker may write keeps no task from being retried or moved.
    """
    return replace(task, value=UNREAD)


def err_of(error: BaseException) -> str:
    """The text that a task keeps: what the handler says, or the error and its way."""
    if isinstance(error, MoveTask | RetryLater | GiveUp):
        # A reason may be any object, whose text can't be told.
        with suppress(Exception):
            if said := str(error):
                return said.replace("\0", "\\0").encode(errors="backslashreplace").decode()
    return describe(error)
