"""Workers: what becomes of tasks that their handlers finish, fail, or lose."""

from __future__ import annotations

import pytest

from tests.contract.work_queue.conftest import MakeWork
from work_queue.modification import Insert
from work_queue.work_queue import WorkQueue
from work_queue.workers.job import Job
from work_queue.workers.worker import Worker


@pytest.fixture
def work(make_work: MakeWork) -> WorkQueue:
    return make_work(claimant="me")


def test_a_task_whose_handler_returns_is_deleted(work: WorkQueue) -> None:
    seen = list[object]()
    work.modify(*(Insert(queue="a", value=number) for number in range(3)))
    Worker(work, lambda job: seen.append(job.task.value), "a").run(until_empty=True)
    assert sorted(seen) == [0, 1, 2]  # type: ignore[type-var]
    assert work.queues() == {}


def test_what_a_handler_returns_is_written(work: WorkQueue) -> None:
    work.insert("a", 7)

    async def handle(job: Job) -> Insert:
        return Insert(queue="b", value=job.task.value)

    Worker(work, handle, "a").run(until_empty=True)
    assert [task.value for task in work.tasks("b")] == [7]
    assert work.queues() == {"b": 1}
