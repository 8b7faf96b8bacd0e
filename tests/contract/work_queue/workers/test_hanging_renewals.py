"""Workers: renewals that get no answer, as if the network had swallowed them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from queue_core.model.retry_policies import ImmediateRetries
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.workers.handlers import SHORT, Start
from work_queue.document import DocClaim
from work_queue.modification import Insert, Renew
from work_queue.modified import Modified
from work_queue.work_queue import WorkQueue
from work_queue.workers.job import Job
from work_queue.workers.lease import Lease
from work_queue.workers.worker import Worker


class Hanging:
    """Swallows renewals, or their answers, until the test ends."""

    def __init__(self, work: WorkQueue) -> None:
        self._modify = work.modify
        self.renewals = self.answers = 0
        """How many of each it is going to swallow."""
        self.hung = threading.Semaphore(0)
        """Those that hang."""
        self.end = threading.Event()

    def modify(self, *actions: Any, **options: Any) -> Modified:
        renews = isinstance(actions[0], Renew) and actions[0].seconds > 0
        if renews and self.renewals:
            self.renewals -= 1
            self._hang()
            raise TimeoutError
        modified = self._modify(*actions, **options)
        if renews and self.answers:
            self.answers -= 1
            self._hang()
        return modified

    def _hang(self) -> None:
        self.hung.release()
        self.end.wait(2 * BOUND_SECONDS)


@pytest.fixture
def hanging(work: WorkQueue, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    hanging = Hanging(work)
    monkeypatch.setattr(work, "modify", hanging.modify)
    yield hanging
    hanging.end.set()


def begun(work: WorkQueue, lease_seconds: float | None = None) -> Lease:
    """A lease of a task and a doc set."""
    work.insert("a")
    task = work.claim("a", timeout_seconds=BOUND_SECONDS, lease_seconds=lease_seconds)
    lease = Lease(work, task, 0.0)
    lease.holds(work.claim_docs(DocClaim("n", "k")))
    return lease


@pytest.mark.parametrize("swallowed", ["renewals", "answers"])
def test_a_renewal_that_hangs_is_tried_again(
    work: WorkQueue, hanging: Hanging, start: Start, swallowed: str
) -> None:
    def handle(job: Job) -> Insert:
        least = 2 if swallowed == "answers" else 1
        eventually(lambda: work.tasks("a")[0].version >= job.task.version + least, "a renewal")
        return Insert(queue="b")

    setattr(hanging, swallowed, 1)
    work.insert("a")
    worker = Worker(work, handle, "a", lease_seconds=4, retry=ImmediateRetries(0))
    start(worker, limit=1).result(BOUND_SECONDS)
    assert hanging.hung.acquire(blocking=False)
    assert work.queues() == {"b": 1}


@pytest.mark.parametrize("hangs", [True, False])
def test_a_function_is_told_that_no_renewal_is_answered(
    work: WorkQueue,
    hanging: Hanging,
    start: Start,
    caplog: pytest.LogCaptureFixture,
    *,
    hangs: bool,
) -> None:
    told = threading.Event()

    def handle(job: Job) -> Insert:
        if job.wait(BOUND_SECONDS):
            told.set()
        return Insert(queue="b")

    hanging.renewals = 1_000
    if not hangs:
        hanging.end.set()  # each fails at once
    task = work.insert("a")
    worker = Worker(work, handle, "a", lease_seconds=SHORT)
    start(worker, limit=1).result(BOUND_SECONDS)
    assert told.wait(BOUND_SECONDS)
    [left] = work.tasks(ids=[task.id])
    assert (left.queue, left.version, left.attempt) == ("a", task.version + 1, 0)
    assert work.tasks("b") == []
    assert "renewal_failed" in caplog.text
    assert "lease_lost" in caplog.text


def test_a_coroutine_is_cancelled_if_no_renewal_is_answered(
    work: WorkQueue, hanging: Hanging, start: Start
) -> None:
    cancelled = threading.Event()

    async def handle(_job: Job) -> Insert:
        try:
            await asyncio.sleep(BOUND_SECONDS)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return Insert(queue="b")

    hanging.renewals = 1_000
    work.insert("a")
    worker = Worker(work, handle, "a", lease_seconds=SHORT)
    start(worker, limit=1).result(BOUND_SECONDS)
    assert cancelled.is_set()
    assert work.tasks("b") == []


def test_nothing_is_renewed_while_the_result_is_written(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    modify, renew, renewals = work.modify, Lease.renew, list[Lease]()

    def slow(*actions: Any, **options: Any) -> Modified:
        if isinstance(actions[0], Insert):
            time.sleep(2 * SHORT)
        return modify(*actions, **options)

    def counted(lease: Lease) -> None:
        renewals.append(lease)
        renew(lease)

    work.insert("a")
    monkeypatch.setattr(work, "modify", slow)
    monkeypatch.setattr(Lease, "renew", counted)
    worker = Worker(work, lambda _: Insert(queue="b"), "a", lease_seconds=SHORT)
    start(worker, limit=1).result(BOUND_SECONDS)
    assert work.queues() == {"b": 1}
    assert len(renewals) <= 1, "one that had begun before"


def test_what_is_written_does_not_wait_long_for_an_answer_that_hangs(
    make_work: MakeWork, work: WorkQueue, hanging: Hanging
) -> None:
    lease = begun(work, lease_seconds=4)
    hanging.answers = 1
    with ThreadPoolExecutor(1) as pool:
        renewing = pool.submit(lease.renew)
        assert hanging.hung.acquire(timeout=BOUND_SECONDS)
        lease.finish([Insert(queue="b")], None)
        assert not renewing.done()
        hanging.end.set()
        renewing.result(BOUND_SECONDS)
    assert work.queues() == {"b": 1}
    assert len(make_work(claimant="another").claim_docs(DocClaim("n", "k"))) == 1


def test_an_answer_that_comes_after_another_renewal_changes_nothing(
    work: WorkQueue, hanging: Hanging
) -> None:
    lease = begun(work)
    hanging.answers = 1
    with ThreadPoolExecutor(1) as pool:
        renewing = pool.submit(lease.renew)
        assert hanging.hung.acquire(timeout=BOUND_SECONDS)
        lease.renew()
        hanging.end.set()
        renewing.result(BOUND_SECONDS)
    lease.renew()
    lease.finish([Insert(queue="b")], None)
    assert work.queues() == {"b": 1}


def test_docs_are_claimed_at_the_version_of_a_renewal_without_an_answer(
    work: WorkQueue, hanging: Hanging
) -> None:
    work.insert("a")
    task = work.claim("a", timeout_seconds=BOUND_SECONDS, lease_seconds=10)
    lease = Lease(work, task, 0.0)
    hanging.answers = 1
    with ThreadPoolExecutor(1) as pool:
        renewing = pool.submit(lease.renew)
        assert hanging.hung.acquire(timeout=BOUND_SECONDS)
        lease.claim_docs([DocClaim("n", "k")])
        hanging.end.set()
        renewing.result(BOUND_SECONDS)
    lease.renew()
    [docs] = lease.sets
    lease.finish([Insert(queue="b"), docs.depend()], None)
    assert work.queues() == {"b": 1}


def test_docs_that_come_during_a_renewal_are_held_and_renewed_in_time(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    modify = work.modify

    def late(*actions: Any, **options: Any) -> Modified:
        monkeypatch.undo()
        lease.claim_docs([DocClaim("n", "k")])
        return modify(*actions, **options)

    work.insert("a")
    lease = Lease(work, work.claim("a", timeout_seconds=BOUND_SECONDS), 0.0)
    monkeypatch.setattr(work, "modify", late)
    lease.renew()
    assert lease.seconds_to_renewal == 0, "the docs end before the task"
    lease.renew()
    assert lease.seconds_to_renewal > 0
    [docs] = lease.sets
    assert docs.at == lease.task.at
    lease.finish([Insert(queue="b"), docs.depend()], None)
    assert work.queues() == {"b": 1}
