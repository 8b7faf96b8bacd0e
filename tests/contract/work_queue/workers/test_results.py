"""Workers: what their handlers return is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queue_core.model.retry_policies import ImmediateRetries
from tests.contract.harness import BOUND_SECONDS
from work_queue.modification import Action, Insert, Renew
from work_queue.task import Task
from work_queue.work_queue import WorkQueue
from work_queue.workers.job import Job
from work_queue.workers.worker import Worker


def test_a_task_whose_handler_returns_is_deleted(work: WorkQueue) -> None:
    seen = list[int]()
    work.modify(*(Insert(queue="a", value=number) for number in range(3)))
    Worker(work, lambda job: seen.append(job.task.value), "a").run(until_empty=True)
    assert sorted(seen) == [0, 1, 2]
    assert work.queues() == {}


def test_what_a_handler_returns_is_written(work: WorkQueue) -> None:
    work.insert("a", 7)

    async def handle(job: Job) -> Insert:
        return Insert(queue="b", value=job.task.value)

    Worker(work, handle, "a").run(until_empty=True)
    assert [(task.queue, task.value) for task in work.tasks("b")] == [("b", 7)]
    assert work.queues() == {"b": 1}


def test_a_task_that_is_named_is_not_deleted_and_its_claims_start_anew(work: WorkQueue) -> None:
    work.insert("a", 7)

    def handle(job: Job) -> list[Action]:
        return [job.task.change(queue="b"), Insert(queue="c")]

    Worker(work, handle, "a").run(until_empty=True)
    assert work.queues() == {"b": 1, "c": 1}
    assert work.tasks("b")[0].claims == 0


@pytest.mark.parametrize(
    "ends",
    [Task.release, Task.depend, lambda task: task.renew(0.05), lambda task: task.change()],
    ids=["release", "depend", "renew", "change"],
)
def test_runs_that_end_without_the_end_of_their_task_are_no_claims_too_many(
    work: WorkQueue, ends: Callable[[Task], Action]
) -> None:
    claims = list[int]()

    def handle(job: Job) -> Action:
        claims.append(job.task.claims)
        return ends(job.task)

    work.insert("a", 7, attempt=2, err="broken")
    Worker(work, handle, "a", max_claims=1, lease_seconds=1).run(limit=3)
    assert claims == [1, 1, 1]
    [task] = work.tasks("a")
    assert (task.value, task.claims, task.attempt, task.err) == (7, 0, 2, "broken")


def test_tasks_that_a_handler_holds_and_keeps_start_anew_too(work: WorkQueue) -> None:
    work.insert("a")
    work.insert("more")
    for _ in range(2):
        work.modify(work.claim("more", timeout_seconds=BOUND_SECONDS).release())

    def handle(job: Job) -> list[Action]:
        [other] = job.claim_more("more", limit=1)
        return [other.renew(30)]

    Worker(work, handle, "a", retry=ImmediateRetries(0)).run(limit=1)
    [other] = work.tasks("more")
    assert other.claims == 0
    assert 29 < (other.at - other.modified).total_seconds() <= 30


def test_a_handler_may_undo_its_claim(work: WorkQueue) -> None:
    """It says that the run has not ended: earlier claims count still."""
    work.insert("a")
    work.modify(work.claim("a", timeout_seconds=BOUND_SECONDS).release())
    Worker(work, lambda job: Renew(job.task.ref, 0.0, undo_claim=True), "a").run(limit=1)
    assert work.tasks("a")[0].claims == 1


def test_what_is_no_action_is_a_failure(work: WorkQueue) -> None:
    work.insert("a")

    def send_mail(_job: Job) -> Any:
        return "done"

    Worker(work, send_mail, "a", retry=ImmediateRetries(0)).run(until_empty=True)
    err = work.tasks("a/err")[0].err
    assert "InvalidRequestError" in err
    assert "send_mail returned 'done'. Nothing was written. A handler returns None, an ac" in err
