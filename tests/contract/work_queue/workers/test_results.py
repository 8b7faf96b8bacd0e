"""Workers: what their handlers return is written."""

from __future__ import annotations

from typing import Any

from queue_core.model.retry_policies import ImmediateRetries
from work_queue.modification import Action, Insert
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


def test_what_is_no_action_is_a_failure(work: WorkQueue) -> None:
    work.insert("a")
    handle: Any = lambda _job: "done"  # noqa: E731
    Worker(work, handle, "a", retry=ImmediateRetries(0)).run(until_empty=True)
    assert "InvalidRequestError" in work.tasks("a/err")[0].err
