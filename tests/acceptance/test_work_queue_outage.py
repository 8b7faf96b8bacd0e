"""A worker of a work queue through an outage of its database server."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest
from sqlalchemy import URL

from devtools.server import DatabaseServer, StopMode
from stickybus import DatabaseUnreachableError, Insert, Job, Worker, WorkQueue
from tests.contract.harness import eventually

MODES = pytest.mark.parametrize("mode", list(StopMode), ids=lambda mode: mode.name.lower())
LEASE_SECONDS = 2.0
LONG = 12.0
"""A lease that outlives the restart of a server."""


class Running:
    """A worker in a thread; values below zero wait for `go`."""

    def __init__(self, work: WorkQueue, pool: ThreadPoolExecutor, lease_seconds: float) -> None:
        self.runs = Counter[int]()
        self.started = threading.Event()
        self.go = threading.Event()
        self.worker = Worker(work, self._handle, "in", concurrency=2, lease_seconds=lease_seconds)
        self.ended: Future[None] = pool.submit(self.worker.run)

    def _handle(self, job: Job) -> Insert:
        self.runs[job.task.value] += 1
        if job.task.value < 0:
            self.started.set()
            assert self.go.wait(60)
        return Insert(queue="out", value=job.task.value)


@pytest.fixture
def work(own_server_url: URL) -> Iterator[WorkQueue]:
    with WorkQueue(own_server_url) as work:
        yield work


@pytest.fixture
def lease_seconds() -> float:
    return LEASE_SECONDS


@pytest.fixture
def running(work: WorkQueue, lease_seconds: float) -> Iterator[Running]:
    with ThreadPoolExecutor(1) as pool:
        running = Running(work, pool, lease_seconds)
        yield running
        running.go.set()
        running.worker.stop(1)


def insert(work: WorkQueue, value: int) -> None:
    work.insert("in", value)


def until(done: Callable[[], bool], what: str) -> None:
    """Wait for a condition that the database answers, or does not."""

    def answered() -> bool:
        with suppress(DatabaseUnreachableError):
            return done()
        return False

    eventually(answered, what)


@MODES
def test_a_worker_goes_on_after_an_outage_and_each_task_is_done_once(
    own_server: DatabaseServer, work: WorkQueue, running: Running, mode: StopMode
) -> None:
    insert(work, -1)
    assert running.started.wait(20)
    insert(work, 1)
    until(lambda: work.queues().get("out") == 1, "the worker claims")

    own_server.stop(mode)
    running.go.set()  # it ends while the database is away
    with pytest.raises(DatabaseUnreachableError):
        insert(work, 2)
    own_server.start()

    until(lambda: work.queues() == {"out": 2}, "what was running is done")
    insert(work, 3)
    until(lambda: work.queues() == {"out": 3}, "what comes later is done")
    assert sorted(task.value for task in work.tasks("out")) == [-1, 1, 3]
    assert not running.ended.done()


@pytest.mark.parametrize("lease_seconds", [LONG])
def test_a_run_that_outlives_the_outage_keeps_its_task(
    own_server: DatabaseServer, work: WorkQueue, running: Running
) -> None:
    insert(work, -1)
    assert running.started.wait(20)
    own_server.restart(StopMode.CRASH)
    # A renewal after the outage: nobody else has claimed the task meanwhile.
    [before] = work.tasks("in")
    until(lambda: work.tasks("in")[0].version > before.version, "a renewal")

    running.go.set()

    until(lambda: work.queues() == {"out": 1}, "it is done")
    assert [task.value for task in work.tasks("out")] == [-1]
