"""Workers: leases of tasks and docs, while handlers run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from queue_core.errors import CommitUnknownError
from queue_core.model.retry_policies import ImmediateRetries
from tests import requirements as needs
from tests.contract.conftest import Orders
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.workers.handlers import SHORT, Start, end_elsewhere, raises, taken
from work_queue.document import DocClaim
from work_queue.faults import DependencyError
from work_queue.modification import Action, Insert, InsertDoc, Renew
from work_queue.modified import Modified
from work_queue.task import Task
from work_queue.values import UNREAD
from work_queue.work_queue import WorkQueue
from work_queue.workers.job import Job
from work_queue.workers.lease import Lease, LeaseLostError
from work_queue.workers.requests import MoveTask
from work_queue.workers.worker import Worker

# -- leases ---------------------------------------------------------------------------------------


def test_scenario_46_task_and_docs_are_renewed_together(work: WorkQueue) -> None:
    work.modify(InsertDoc(namespace="n", key="k", content=1))
    work.insert("a")

    def handle(job: Job) -> list[Action]:
        eventually(lambda: work.tasks("a")[0].version >= 3, "two renewals")
        # Not at once: a renewal may come between the two reads.
        eventually(lambda: work.tasks("a")[0].at == work.docs("n")[0].at, "both have one end")
        assert work.tasks("a")[0].at > job.task.at
        return [job.task.change(queue="b"), job.sets[0].docs[0].change(2)]

    def docs(_task: Task) -> list[DocClaim]:
        return [DocClaim("n", "k")]

    worker = Worker(work, handle, "a", docs=docs, lease_seconds=SHORT, retry=ImmediateRetries(0))
    worker.run(until_empty=True)
    assert work.queues() == {"b": 1}
    [doc] = work.docs("n")
    assert (doc.content, doc.claimant) == (2, "")


def test_a_lease_is_renewed_while_its_docs_are_named(work: WorkQueue, start: Start) -> None:
    work.modify(*(InsertDoc(namespace="n", key=key, content=1) for key in ("quick", "slow")))
    slow = threading.Event()

    def docs(task: Task) -> list[DocClaim]:
        if task.value == "slow":
            slow.set()
            eventually(lambda: work.tasks("a", ids=[task.id])[0].version >= 3, "two renewals")
        return [DocClaim("n", task.value)]

    def handle(job: Job) -> Action:
        slow.wait(BOUND_SECONDS)
        # The loop goes on meanwhile: this one is renewed, too.
        eventually(lambda: work.tasks(ids=[job.task.id])[0].version >= 3, "two renewals")
        return job.sets[0].docs[0].change(2)

    work.insert("a", "quick")
    work.insert("a", "slow", delay=0.01)
    options: dict[str, Any] = {"concurrency": 2, "lease_seconds": SHORT}
    start(Worker(work, handle, "a", docs=docs, **options), until_empty=True).result(BOUND_SECONDS)
    assert work.queues() == {}
    assert [(doc.content, doc.claimant) for doc in work.docs("n")] == [(2, "")] * 2


def test_docs_that_are_named_too_slowly_are_a_failure(work: WorkQueue, start: Start) -> None:
    end = threading.Event()

    def docs(_task: Task) -> list[DocClaim]:
        end.wait(2 * BOUND_SECONDS)
        return []

    work.insert("a")
    worker = Worker(
        work, raises(AssertionError()), "a", docs=docs, max_run_seconds=0.2, max_attempts=1
    )
    start(worker, limit=1).result(BOUND_SECONDS)
    end.set()
    assert "TimeoutError" in work.tasks("a/err")[0].err


@pytest.mark.slow
@pytest.mark.database_only
@needs.any_database
def test_scenario_46_work_may_take_longer_than_its_lease(work: WorkQueue) -> None:
    seen, begun = list[tuple[int, float]](), time.monotonic()

    def handle(job: Job) -> None:
        job.wait(10)
        assert work.try_claim("a", claimant="other") is None
        [held] = work.tasks("a")
        seen.append((held.version - job.task.version, time.monotonic() - begun))

    work.insert("a")
    Worker(work, handle, "a", lease_seconds=6).run(until_empty=True)
    [(renewals, seconds)] = seen
    assert 1 <= renewals <= seconds // 4, "each after two thirds of the lease"
    assert work.queues() == {}


@pytest.mark.slow
def test_scenario_45_a_task_is_moved_after_a_renewal(work: WorkQueue) -> None:
    def handle(job: Job) -> None:
        eventually(lambda: work.tasks("a")[0].version > job.task.version, "a renewal")
        raise MoveTask("b", "not ours")

    for number in range(5):
        task = work.insert("a", number)
        Worker(work, handle, "a", lease_seconds=SHORT).run(limit=1)
        [moved] = work.tasks("b", ids=[task.id])
        assert (moved.value, moved.attempt, moved.claims) == (number, 1, 0)
        assert (moved.err, moved.claimant) == ("not ours", "")


@pytest.mark.parametrize("ends", [Task.delete, taken])
def test_scenario_48_a_lost_lease_cancels_the_handler(
    work: WorkQueue, ends: Callable[[Task], Action]
) -> None:
    seen = list[str]()

    async def handle(job: Job) -> Insert | None:
        if job.task.value == "other":
            return None
        await asyncio.to_thread(end_elsewhere, work, job.task, ends)
        try:
            await asyncio.wait_for(asyncio.Event().wait(), BOUND_SECONDS)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return Insert(queue="b")

    work.insert("a", "first")
    work.insert("a", "other", delay=0.01)
    Worker(work, handle, "a", lease_seconds=SHORT).run(limit=2)
    assert seen == ["cancelled"]
    assert work.queues().keys() <= {"taken"}


def test_scenario_48_a_function_is_told_that_its_lease_is_lost(work: WorkQueue) -> None:
    seen = threading.Event()

    def handle(job: Job) -> Insert:
        end_elsewhere(work, job.task, taken)
        if job.wait(BOUND_SECONDS) and job.given_up:
            seen.set()
        return Insert(queue="b")

    work.insert("a")
    Worker(work, handle, "a", lease_seconds=SHORT).run(limit=1)
    assert seen.wait(BOUND_SECONDS)
    assert work.queues() == {"taken": 1}


def test_a_task_that_was_taken_before_the_handler_returns_is_left_alone(work: WorkQueue) -> None:
    def handle(job: Job) -> Insert:
        work.modify(job.task.change(queue="taken"), claimant=job.task.claimant)
        return Insert(queue="b")

    work.insert("a")
    Worker(work, handle, "a").run(limit=1)
    assert work.queues() == {"taken": 1}
    assert work.tasks("taken")[0].attempt == 0


def test_a_renewal_that_is_faster_than_the_commit_loses_nothing(
    make_work: MakeWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = make_work(claimant="me")
    work.insert("a")
    task = work.claim("a", timeout_seconds=BOUND_SECONDS)
    lease, modify = Lease(work, task, 0.0), work.modify
    renewed, refused = threading.Event(), threading.Event()

    def told(*actions: Any, **options: Any) -> Modified:
        try:
            modified = modify(*actions, **options)
        except DependencyError:
            refused.set()
            raise
        if isinstance(actions[0], Renew):
            renewed.set()
            assert refused.wait(BOUND_SECONDS)
        return modified

    monkeypatch.setattr(work, "modify", told)
    with ThreadPoolExecutor(2) as pool:
        renewal = pool.submit(lease.renew)
        assert renewed.wait(BOUND_SECONDS)
        finishing = pool.submit(lease.finish, [Insert(queue="b")], None)
        finishing.result(BOUND_SECONDS)
        renewal.result(BOUND_SECONDS)
    assert work.queues() == {"b": 1}


def test_a_renewal_sends_no_value(work: WorkQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be long, and its handler has it."""
    work.modify(*(Insert(queue="a", value=number) for number in range(2)))
    task, other = work.claim_many("a", limit=2)
    lease, modify, answers = Lease(work, task, 0.0), work.modify, list[Modified]()
    lease.hold([other])

    def told(*actions: Any, **options: Any) -> Modified:
        answers.append(modify(*actions, **options))
        return answers[-1]

    monkeypatch.setattr(work, "modify", told)
    lease.renew()
    [renewed] = answers
    assert [one.value for one in renewed.changed] == [UNREAD, UNREAD]
    assert lease.task.version == task.version + 1
    assert lease.task.value == task.value


class Losing:
    """Loses the answers of renewals, as many as it is told."""

    def __init__(self, work: WorkQueue, answers: int) -> None:
        self._modify = work.modify
        self._left = answers

    def modify(self, *actions: Any, **options: Any) -> Modified:
        modified = self._modify(*actions, **options)
        if self._left and isinstance(actions[0], Renew) and actions[0].seconds > 0:
            self._left -= 1
            raise CommitUnknownError("the answer is lost")
        return modified


@pytest.mark.parametrize("renews", [True, False])
def test_a_renewal_whose_answer_is_lost_loses_nothing(
    work: WorkQueue,
    monkeypatch: pytest.MonkeyPatch,
    *,
    renews: bool,
) -> None:
    work.modify(*(Insert(queue="a", value=number) for number in range(3)))
    task, other, later = (work.claim("a", timeout_seconds=BOUND_SECONDS) for _ in range(3))
    lease = Lease(work, task, 0.0)
    lease.holds(work.claim_docs(DocClaim("n", "k")))
    lease.hold([other])
    monkeypatch.setattr(work, "modify", Losing(work, 1).modify)
    with pytest.raises(CommitUnknownError):
        lease.renew()
    lease.hold([later])
    if renews:
        lease.renew()
    lease.finish([Insert(queue="b"), other.delete()], None)
    assert work.queues() == {"a": 1, "b": 1}
    [left] = work.tasks("a")
    assert (left.id, left.claimant) == (later.id, "")
    work.claim_docs(DocClaim("n", "k"), claimant="another")


@pytest.mark.parametrize("ends", [Task.delete, taken, Task.release])
def test_who_takes_a_task_after_a_lost_answer_has_it(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch, ends: Callable[[Task], Action]
) -> None:
    work.insert("a")
    lease = Lease(work, work.claim("a", timeout_seconds=BOUND_SECONDS), 0.0)
    with monkeypatch.context() as losing:
        losing.setattr(work, "modify", Losing(work, 1).modify)
        with pytest.raises(CommitUnknownError):
            lease.renew()
    end_elsewhere(work, lease.task, ends)
    with pytest.raises(DependencyError):
        lease.renew()
    with pytest.raises(LeaseLostError):
        lease.finish([Insert(queue="b")], None)
    assert "b" not in work.queues()


def test_a_task_that_its_own_claimant_has_claimed_again_is_another_runs(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal that never took effect leaves the version that a claim raises by one, too."""

    def unsent(*_actions: Any, **_options: Any) -> Modified:
        raise CommitUnknownError("nobody knows")

    work.insert("a")
    task = work.claim("a", lease_seconds=SHORT, timeout_seconds=BOUND_SECONDS)
    lease = Lease(work, task, 0.0)
    with monkeypatch.context() as lost:
        lost.setattr(work, "modify", unsent)
        with pytest.raises(CommitUnknownError):
            lease.renew()
    again = work.claim("a", timeout_seconds=BOUND_SECONDS)
    assert (again.version, again.claimant) == (task.version + 1, task.claimant)
    with pytest.raises(LeaseLostError):
        lease.finish([Insert(queue="b")], None)
    assert "b" not in work.queues()


@pytest.mark.parametrize(
    "error", [TimeoutError("no connection is free"), RuntimeError("no thread")]
)
def test_only_a_refused_renewal_loses_the_lease(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    modify, failures = work.modify, [error]

    def fails(*actions: Any, **options: Any) -> Modified:
        if failures and isinstance(actions[0], Renew):
            raise failures.pop()
        return modify(*actions, **options)

    def handle(job: Job) -> Insert:
        eventually(lambda: work.tasks("a")[0].version > job.task.version, "a renewal")
        return Insert(queue="b")

    monkeypatch.setattr(work, "modify", fails)
    work.insert("a")
    worker = Worker(work, handle, "a", lease_seconds=SHORT, retry=ImmediateRetries(0))
    worker.run(until_empty=True)
    assert work.queues() == {"b": 1}


def test_handlers_that_block_asyncios_threads_hold_up_no_call(work: WorkQueue) -> None:
    """Neither renewals, nor claims, nor what is written."""
    ended = threading.Event()

    async def handle(job: Job) -> Insert:
        blocking = asyncio.ensure_future(asyncio.to_thread(ended.wait, 2 * BOUND_SECONDS))
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(BOUND_SECONDS):
                # Its worker renews it, and tells nobody.
                while (await work.tasks_async("a"))[0].version == job.task.version:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                await work.insert_async("b")
                assert await work.try_claim_async("b") is not None
                await work.claim_docs_async(DocClaim("n", "k"))
        finally:
            ended.set()
            await blocking
        return Insert(queue="c")

    async def run() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        worker = Worker(work, handle, "a", lease_seconds=SHORT, retry=ImmediateRetries(0))
        await worker.run_async(until_empty=True)

    work.insert("a")
    asyncio.run(run())
    assert work.queues() == {"b": 1, "c": 1}


# -- docs -----------------------------------------------------------------------------------------


def test_doc_sets_are_claimed_for_the_handler_and_released(work: WorkQueue) -> None:
    work.modify(InsertDoc(namespace="n", key="k", content=5))
    work.insert("a")

    def handle(job: Job) -> None:
        assert [docs.key for docs in job.sets] == ["l", "k"]
        assert job.sets[1].docs[0].content == 5
        assert work.docs("n")[0].claimant == job.task.claimant

    def docs(_task: Task) -> list[DocClaim]:
        return [DocClaim("n", "l"), DocClaim("n", "k")]

    Worker(work, handle, "a", docs=docs, retry=ImmediateRetries(0)).run(until_empty=True)
    assert work.queues() == {}
    assert len(work.claim_docs(DocClaim("n", "l"), DocClaim("n", "k"), claimant="other")) == 2


def test_a_dependency_on_what_is_held_releases_it(work: WorkQueue) -> None:
    work.modify(InsertDoc(namespace="n", key="k", content=5))
    work.insert("a")
    work.insert("more")
    claims = [DocClaim("n", "l"), DocClaim("n", "k")]

    def handle(job: Job) -> list[Action]:
        [other] = job.claim_more("more", limit=1)
        changed = job.sets[1].docs[0].change(6)
        return [other.depend(), *(docs.depend() for docs in job.sets), changed]

    worker = Worker(work, handle, "a", docs=lambda _: claims, retry=ImmediateRetries(0))
    worker.run(until_empty=True)
    assert work.queues() == {"more": 1}
    assert work.tasks("more")[0].claimant == ""
    [_, changed] = work.claim_docs(*claims, claimant="other")
    assert [doc.content for doc in changed.docs] == [6]


@pytest.mark.parametrize("lost", [0, 2])
def test_a_task_whose_docs_are_held_is_put_off(work: WorkQueue, lost: int) -> None:
    """The claims of workers that were lost with it still count."""
    work.claim_docs(DocClaim("n", "k"), claimant="other")
    work.insert("a", 1)
    for _ in range(lost):
        work.modify(work.claim("a", timeout_seconds=BOUND_SECONDS).release())
    _try_once(work)
    [task] = work.tasks("a")
    assert (task.value, task.attempt, task.claims, task.err) == (1, 0, lost, "")
    assert 0.7 < (task.at - task.modified).total_seconds() <= 1


def _try_once(work: WorkQueue) -> None:
    """Let a worker claim a task and its docs, which others hold, and stop then."""

    def docs(_task: Task) -> list[DocClaim]:
        worker.stop()
        return [DocClaim("n", "k")]

    worker = Worker(work, raises(AssertionError()), "a", docs=docs)
    worker.run()


@needs.many_writers
@pytest.mark.database_only
def test_a_task_whose_docs_are_locked_is_put_off(work: WorkQueue, orders: Orders) -> None:
    """By an open transaction, which may stay so for long."""
    work.modify(InsertDoc(namespace="n", key="k", content=1))
    work.insert("a", 1)
    with orders.engine.begin() as connection:
        [doc] = work.docs("n")
        work.modify(doc.change(2), connection=connection)
        _try_once(work)
        [task] = work.tasks("a")
    assert (task.value, task.attempt, task.claims, task.err) == (1, 0, 0, "")
    assert 0.7 < (task.at - task.modified).total_seconds() <= 1
