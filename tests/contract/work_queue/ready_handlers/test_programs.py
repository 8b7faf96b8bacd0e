"""Programs get the values of tasks, and end with them."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stickybus import Insert, Job, Task, Worker, WorkQueue
from stickybus.task_handlers import run_program
from tests import requirements as needs
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.work_queue.ready_handlers.running import run, values
from work_queue.workers.ready import results


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


@needs.any_database
def test_a_program_gets_the_value_and_its_output_is_the_result(
    work: WorkQueue, database_name: str
) -> None:
    work.modify(Insert(queue="in", value={"a": [1, None]}), Insert(queue="in", value=b"\xff"))

    echo = "import sys; print(sys.stdin.buffer.read(), end='')"
    run(work, run_program(python(echo), results="out"))

    assert set(values(work)) == {repr(b'{"a": [1, null]}'), repr(b"\xff")}


@needs.any_database
def test_a_program_that_fails_says_why(work: WorkQueue, database_name: str) -> None:
    work.insert("in")

    run(work, run_program(python("import sys; sys.exit('no paper')")))

    [failed] = work.tasks("in/err")
    assert "exit code 1: no paper" in failed.err


@needs.any_database
@pytest.mark.parametrize("rest", ["", "time.sleep(600)"])
def test_an_output_that_no_task_can_hold_gives_the_task_up(
    work: WorkQueue,
    database_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rest: str,
) -> None:
    """The program has acted. One that goes on is killed."""
    monkeypatch.setattr(results, "LONGEST_BYTES", 100)
    ran = tmp_path / "ran"
    program = f"import time; open({str(ran)!r}, 'a').write('x'); print('a' * 101, flush=True)"
    work.insert("in")

    run(work, run_program(python(f"{program}; {rest}"), results="out"))

    assert ran.read_text() == "x"
    [failed] = work.tasks("in/err")
    assert "wrote more than a task can hold, which is 100 bytes" in failed.err
    assert work.queues() == {"in/err": 1}


@needs.any_database
def test_an_output_that_nobody_wants_may_be_long(
    work: WorkQueue, database_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "LONGEST_BYTES", 100)
    work.insert("in")

    run(work, run_program(python("print('a' * 101)")))

    assert work.queues() == {}


@needs.any_database
def test_a_program_is_killed_when_its_task_is_given_up(work: WorkQueue, database_name: str) -> None:
    work.insert("in")
    ended = threading.Event()
    sleep = run_program(python("import time; time.sleep(60)"))

    def handler(job: Job) -> Insert | None:
        try:
            return sleep(job)
        finally:
            ended.set()

    run(work, handler, max_run_seconds=0.3, max_attempts=1)

    assert ended.wait(BOUND_SECONDS)
    assert work.queues() == {"in/err": 1}


@needs.any_database
def test_a_program_has_ended_when_its_worker_has_given_its_task_back(
    work: WorkQueue, database_name: str, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    program = f"import os, time; open({str(begun)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    work.insert("in")
    worker = Worker(work, run_program(python(program)), "in")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(worker.run)
        eventually(lambda: begun.exists() and begun.read_text() != "", "the program runs")
        worker.stop(0)
        running.result(BOUND_SECONDS)
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)
    assert work.try_claim("in") is not None


def test_what_a_program_has_started_is_killed_with_it(work: WorkQueue, tmp_path: Path) -> None:
    begun, given_up, now = tmp_path / "begun", threading.Event(), datetime.now(UTC)
    child = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(600)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    task = Task("t", 1, "in", now, "me", 1, None, now, now, 0, "")
    handler = run_program(python(parent))
    job = Job(task, (), given_up=given_up, work=work, hold=lambda _tasks: None)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(handler, job)
        eventually(begun.exists)
        given_up.set()
        with pytest.raises(RuntimeError, match="exit code -9"):
            running.result(BOUND_SECONDS)
