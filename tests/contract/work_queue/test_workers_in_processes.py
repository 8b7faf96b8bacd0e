"""Workers in processes of their own: killed, told to stop, and several on one queue."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import URL

from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.work_queue.backends import address_of
from tests.contract.work_queue.conftest import MakeWork
from work_queue.modification import Insert
from work_queue.task import Task
from work_queue.work_queue import WorkQueue
from work_queue.workers.job import Job
from work_queue.workers.worker import Worker

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
from stickybus import Insert, Worker, WorkQueue

_, url, name, grace, *options = sys.argv

def handle(job):
    if "hang" in options:
        work.insert("begun", name)
        job.wait(600)
    elif "wait" in options:
        work.insert("begun", name)
        work.claim("go")
    return Insert(queue="done", value=[name, job.task.value])

with WorkQueue(url) as work:
    Worker(work, handle, "a", lease_seconds=1, grace_seconds=float(grace)).run()
print("stopped", flush=True)
"""
Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def work(make_work: MakeWork) -> WorkQueue:
    return make_work(claimant="me")


@pytest.fixture
def spawn(work: WorkQueue, database_url: URL) -> Iterator[Spawn]:
    """Starts a worker in a process of its own, which is killed in the end."""
    started = list[subprocess.Popen[str]]()
    url = address_of(work, database_url)

    def begin(name: str, *options: str, grace: float = 60) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, url, name, str(grace), *options],
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def killed(work: WorkQueue, process: subprocess.Popen[str]) -> Task:
    """Kill a process, and return the task that it holds: a slow one may have renewed it late."""
    process.kill()
    process.wait(BOUND_SECONDS)
    [held] = [task for task in work.tasks("a") if task.claimant]
    return held


def test_the_place_of_a_killed_process_is_free_when_its_lease_ends(
    work: WorkQueue, spawn: Spawn
) -> None:
    work.limit("a", concurrency=1)
    work.modify(Insert(queue="a"), Insert(queue="a"))
    process = spawn("first", "hang")
    work.claim("begun", timeout_seconds=BOUND_SECONDS)
    held = killed(work, process)
    assert work.claim("a", timeout_seconds=BOUND_SECONDS).modified >= held.at
    assert work.try_claim("a") is None


def test_the_task_of_a_killed_process_comes_back_when_its_lease_ends(
    work: WorkQueue, spawn: Spawn
) -> None:
    work.insert("a", 1)
    process = spawn("first", "hang")
    work.claim("begun", timeout_seconds=BOUND_SECONDS)
    eventually(lambda: work.tasks("a")[0].version >= 2, "a renewal")
    held, seen = killed(work, process), list[Task]()
    Worker(work, lambda job: seen.append(job.task), "a").run(limit=1)
    [again] = seen
    assert again.claims == 2
    assert again.modified >= held.at
    assert work.tasks("done") == []


def test_sigterm_lets_the_handler_finish(work: WorkQueue, spawn: Spawn) -> None:
    work.modify(Insert(queue="a", value=1))
    process = spawn("first", "wait")
    work.claim("begun", timeout_seconds=BOUND_SECONDS)
    work.insert("a", 2)
    process.send_signal(signal.SIGTERM)
    work.insert("go")
    assert process.communicate(timeout=BOUND_SECONDS)[0] == "stopped\n"
    assert process.returncode == 0
    assert [task.value for task in work.tasks("done")] == [["first", 1]]
    assert [task.value for task in work.tasks("a")] == [2]


def test_sigterm_gives_back_what_does_not_end_in_time(work: WorkQueue, spawn: Spawn) -> None:
    work.insert("a", 1)
    process = spawn("first", "hang", grace=0.1)
    work.claim("begun", timeout_seconds=BOUND_SECONDS)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=BOUND_SECONDS)[0] == "stopped\n"
    [task] = work.tasks("a")
    assert (task.claimant, task.attempt) == ("", 0)
    assert work.tasks("done") == []


def test_several_processes_share_a_queue(work: WorkQueue, spawn: Spawn) -> None:
    work.modify(*(Insert(queue="a", value=number) for number in range(60)))
    for name in ("first", "second"):
        spawn(name)

    def handle(job: Job) -> Insert:
        return Insert(queue="done", value=["here", job.task.value])

    Worker(work, handle, "a", concurrency=2, lease_seconds=30).run(until_empty=True)
    eventually(lambda: len(work.tasks("done")) >= 60)
    numbers = Counter(task.value[1] for task in work.tasks("done"))
    assert numbers == Counter(range(60))
