"""Tasks are taken in batches, which succeed or fail as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from stickybus import (
    Change,
    DocClaim,
    ImmediateRetries,
    Insert,
    InsertDoc,
    Job,
    Task,
    Worker,
    WorkQueue,
)
from stickybus.task_handlers import in_batches
from tests.contract.harness import eventually
from tests.contract.work_queue.ready_handlers.running import run, values
from tests.contract.work_queue.workers.handlers import SHORT, end_elsewhere


def test_many_tasks_are_taken_at_a_time(work: WorkQueue) -> None:
    work.modify(*(Insert(queue="in", value=number) for number in range(25)))
    sizes = list[int]()

    def handle(tasks: Sequence[Task]) -> Insert:
        sizes.append(len(tasks))
        return Insert(queue="out", value=sum(task.value for task in tasks))

    run(work, in_batches(handle, limit=10))

    assert sizes == [10, 10, 5]
    assert sum(values(work)) == sum(range(25))
    assert work.queues() == {"out": 3}


def test_a_batch_that_fails_is_given_back_as_a_whole(work: WorkQueue) -> None:
    work.modify(*(Insert(queue="in", value=number) for number in range(3)))
    failures = 1

    def handle(tasks: Sequence[Task]) -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise ValueError

    run(work, in_batches(handle))

    assert work.queues() == {}


def test_only_the_first_task_of_a_batch_that_fails_counts_it(work: WorkQueue) -> None:
    work.modify(*(Insert(queue="in", value=number) for number in range(4)))
    sizes = list[int]()

    def handle(tasks: Sequence[Task]) -> None:
        sizes.append(len(tasks))
        raise ValueError

    run(work, in_batches(handle), max_claims=1)

    failed = work.tasks("in/err")
    assert [(task.attempt, task.err[:10]) for task in failed] == [(2, "ValueError")] * 4
    assert len(sizes) == 8
    assert sizes[0] == 4


def test_all_tasks_of_a_batch_are_renewed_with_their_docs(work: WorkQueue) -> None:
    work.modify(*(Insert(queue="in", value=number) for number in range(3)))
    work.modify(InsertDoc(namespace="n", key="k"))

    def handle(tasks: Sequence[Task]) -> Insert:
        assert len(tasks) == 3
        eventually(lambda: min(task.version for task in work.tasks("in")) >= 3, "two renewals")
        # Not at once: a renewal may come between the two reads.
        eventually(
            lambda: {task.at for task in work.tasks("in")} == {work.docs("n")[0].at},
            "all have one end",
        )
        assert min(task.at for task in work.tasks("in")) > max(task.at for task in tasks)
        return Insert(queue="out")

    def docs(_task: Task) -> list[DocClaim]:
        return [DocClaim("n", "k")]

    run(work, in_batches(handle), docs=docs, lease_seconds=SHORT)

    assert work.queues() == {"out": 1}
    assert work.docs("n")[0].claimant == ""


def test_a_batch_of_which_a_task_was_taken_writes_nothing(work: WorkQueue) -> None:
    work.modify(*(Insert(queue="in", value=number) for number in range(3)))
    sizes = list[int]()

    def handle(tasks: Sequence[Task]) -> Insert:
        sizes.append(len(tasks))
        if len(sizes) == 1:
            end_elsewhere(work, tasks[2], Task.delete)
        return Insert(queue="out", value=len(tasks))

    worker = Worker(work, in_batches(handle), "in", lease_seconds=SHORT)
    worker.run(limit=1)

    assert work.queues() == {"in": 2}
    eventually(lambda: work.queue_stats("in")[0].available == 2)
    worker.run(until_empty=True)
    # Their first claim has led to no end, so they run alone.
    assert (sizes, values(work)) == ([3, 1, 1], [1, 1])


def test_what_a_handler_holds_besides_is_released_unless_it_says_otherwise(
    work: WorkQueue,
) -> None:
    work.modify(*(Insert(queue="in", value=number) for number in range(3)))

    def handle(job: Job) -> Change:
        more = job.claim_more(limit=2)
        return more[0].change(queue="out", value="moved")

    Worker(work, handle, "in", lease_seconds=60).run(limit=1)

    [left] = work.tasks("in")
    assert (left.claimant, left.claims) == ("", 0)
    assert values(work) == ["moved"]


def test_a_coroutine_holds_more_tasks_of_other_queues(work: WorkQueue) -> None:
    work.insert("in", 1)
    work.modify(*(Insert(queue="more", value=value) for value in (2, 3)))

    async def handle(job: Job) -> list[Change]:
        assert await job.claim_more_async(limit=2) == []
        more = await job.claim_more_async("none", "more", limit=2, timeout_seconds=5)
        assert {task.claimant for task in more} == {job.task.claimant}
        # A renewal comes after two thirds of the lease.
        await asyncio.sleep(SHORT)
        assert all(task.version >= 2 for task in work.tasks("more"))
        return [task.change(queue="out") for task in more]

    Worker(work, handle, "in", lease_seconds=SHORT, retry=ImmediateRetries(0)).run(limit=1)

    assert work.queues() == {"out": 2}


def test_only_tasks_that_no_action_names_are_deleted(work: WorkQueue) -> None:
    work.modify(*(Insert(queue="in", value=value) for value in range(4)))

    def handle(tasks: Sequence[Task]) -> list[Change]:
        assert len(tasks) == 4
        return [task.change(queue="out") for task in tasks if task.value in {0, 2}]

    run(work, in_batches(handle))

    assert work.queues() == {"out": 2}
    assert sorted(values(work)) == [0, 2]


def test_tasks_that_were_claimed_before_run_alone(work: WorkQueue) -> None:
    """One of them may have killed its worker."""
    work.modify(*(Insert(queue="in", value="suspect") for _ in range(3)))
    for task in work.claim_many("in", limit=3):
        work.modify(task.release())
    work.modify(*(Insert(queue="in", value="new") for _ in range(3)))
    batches = list[list[Any]]()

    def handle(tasks: Sequence[Task]) -> None:
        batches.append([task.value for task in tasks])

    run(work, in_batches(handle), max_claims=2)

    assert work.queues() == {}
    assert [batch for batch in batches if "suspect" in batch] == [["suspect"]] * 3
    assert sum(map(len, batches)) == 6


def test_a_batch_of_one_claims_no_more(work: WorkQueue) -> None:
    work.modify(Insert(queue="in"), Insert(queue="in"))
    sizes = list[int]()

    def handle(tasks: Sequence[Task]) -> None:
        sizes.append(len(tasks))

    run(work, in_batches(handle, limit=1))

    assert sizes == [1, 1]
