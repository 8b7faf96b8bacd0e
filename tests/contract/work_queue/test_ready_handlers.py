"""Ready-made handlers do what their worker needs: once, all or nothing."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from stickybus import (
    Change,
    ConfigurationError,
    DocClaim,
    ImmediateRetries,
    Insert,
    InsertDoc,
    Job,
    Task,
    Worker,
    WorkQueue,
)
from stickybus.task_handlers import in_batches, map_to, post_to, run_program, write_files
from tests import requirements as needs
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.service.authorities import authorities
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.workers.handlers import SHORT, end_elsewhere

__all__ = ["authorities"]


@pytest.fixture
def work(make_work: MakeWork) -> WorkQueue:
    return make_work(claimant="me")


def run(work: WorkQueue, handler: Any, queue: str = "in", **options: Any) -> None:
    Worker(work, handler, queue, retry=ImmediateRetries(1), **options).run(until_empty=True)


def values(work: WorkQueue, queue: str = "out") -> list[Any]:
    return [task.value for task in work.tasks(queue)]


def test_a_value_is_mapped_to_many(work: WorkQueue) -> None:
    work.insert("in", "to be or not")

    run(work, map_to("out", str.split))

    assert sorted(values(work)) == ["be", "not", "or", "to"]
    assert work.queues() == {"out": 4}


def test_a_map_that_fails_on_the_way_inserts_nothing(work: WorkQueue) -> None:
    def outputs(value: int) -> Iterator[int]:
        yield value
        yield value // 0

    work.insert("in", 1)
    run(work, map_to("out", outputs))

    assert work.queues() == {"in/err": 1}


def test_many_tasks_are_taken_at_a_time(work: WorkQueue) -> None:
    work.modify(*(Insert(queue="in", value=number) for number in range(25)))
    sizes = list[int]()

    def handle(tasks: Sequence[Task]) -> Insert:
        sizes.append(len(tasks))
        return Insert(queue="out", value=sum(task.value for task in tasks))

    run(work, in_batches(work, handle, limit=10))

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

    run(work, in_batches(work, handle))

    assert work.queues() == {}


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

    run(work, in_batches(work, handle), docs=docs, lease_seconds=SHORT)

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

    worker = Worker(work, in_batches(work, handle), "in", lease_seconds=SHORT)
    worker.run(limit=1)

    assert work.queues() == {"in": 2}
    eventually(lambda: work.queue_stats("in")[0].available == 2)
    worker.run(until_empty=True)
    assert (sizes, values(work)) == ([3, 2], [2])


def test_what_a_handler_holds_besides_is_released_unless_it_says_otherwise(
    work: WorkQueue,
) -> None:
    work.modify(*(Insert(queue="in", value=number) for number in range(3)))

    def handle(job: Job) -> Change:
        more = work.claim_many("in", limit=2, claimant=job.task.claimant, lease_seconds=60)
        job.hold(more)
        return more[0].change(queue="out", value="moved")

    Worker(work, handle, "in", lease_seconds=60).run(limit=1)

    [left] = work.tasks("in")
    assert (left.claimant, left.claims) == ("", 1)
    assert values(work) == ["moved"]


def test_a_batch_of_one_claims_no_more(work: WorkQueue) -> None:
    work.modify(Insert(queue="in"), Insert(queue="in"))
    sizes = list[int]()

    def handle(tasks: Sequence[Task]) -> None:
        sizes.append(len(tasks))

    run(work, in_batches(work, handle, limit=1))

    assert sizes == [1, 1]


# -- programs -------------------------------------------------------------------------------------


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


def test_what_a_program_has_started_is_killed_with_it(tmp_path: Path) -> None:
    begun, given_up, now = tmp_path / "begun", threading.Event(), datetime.now(UTC)
    child = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(600)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    task = Task("t", 1, "in", now, "me", 1, None, now, now, 0, "")
    handler = run_program(python(parent))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(handler, Job(task, (), given_up, lambda _tasks: None))
        eventually(begun.exists)
        given_up.set()
        with pytest.raises(RuntimeError, match="exit code -9"):
            running.result(BOUND_SECONDS)


# -- files ----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose own folder has nothing else."""
    made = tmp_path / "files" / "folder"
    made.mkdir(parents=True)
    return made


@needs.any_database
def test_values_are_written_to_files(work: WorkQueue, database_name: str, folder: Path) -> None:
    big = 2**80
    work.modify(
        Insert(queue="in", id="json", value={"a": [big, None]}),
        Insert(queue="in", id="bytes", value=b"\xff"),
    )

    run(work, write_files(folder, results="out"))

    assert json.loads((folder / "json.json").read_bytes()) == {"a": [big, None]}
    assert (folder / "bytes.bin").read_bytes() == b"\xff"
    assert {*values(work)} == {str(path) for path in folder.iterdir()}
    assert work.queues() == {"out": 2}


@needs.any_database
@pytest.mark.parametrize("id_", ["../out", "/out", "..", ".", "ß" * 32])
def test_a_file_is_in_the_folder_whatever_the_id_of_its_task(
    work: WorkQueue, database_name: str, folder: Path, id_: str
) -> None:
    work.insert("in", 1, id=id_)

    run(work, write_files(folder))

    assert [path.read_text() for path in folder.iterdir()] == ["1"]
    assert [*folder.parent.iterdir()] == [folder]


@needs.any_database
def test_a_file_that_can_not_be_written_is_a_failure_and_leaves_nothing(
    work: WorkQueue, database_name: str, folder: Path
) -> None:
    (folder / "taken.json").mkdir()
    work.insert("in", 1, id="taken")

    run(work, write_files(folder))

    [failed] = work.tasks("in/err")
    assert "IsADirectoryError" in failed.err
    assert [path.name for path in folder.iterdir()] == ["taken.json"]


def test_files_need_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Make it first"):
        write_files(tmp_path / "none")


# -- deliveries -----------------------------------------------------------------------------------


class Receiver(ThreadingHTTPServer):
    """Answers with what it is told to, and keeps what it got."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiving)
        self.answers = list[tuple[int, dict[str, str], bytes]]()
        self.got = list[tuple[str, str, bytes]]()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/tasks"


class _Receiving(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        kind, key = self.headers["Content-Type"], self.headers["Idempotency-Key"]
        self.server.got.append((key, kind, body))
        code, headers, answer = self.server.answers.pop(0)
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(answer))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_facts: object) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@needs.any_database
def test_a_value_is_posted_and_the_answer_is_the_result(
    work: WorkQueue, receiver: Receiver, database_name: str
) -> None:
    task = work.insert("in", {"to": "ann"})
    receiver.answers += [(200, {"Content-Type": "application/json"}, b'{"ok": true}')]

    run(work, post_to(receiver.url, results="out"))

    [(key, kind, body)] = receiver.got
    assert (key, kind, json.loads(body)) == (task.id, "application/json", {"to": "ann"})
    assert values(work) == [{"ok": True}]


@needs.any_database
@pytest.mark.parametrize("code", [500, 503, 429])
def test_an_answer_that_may_change_is_asked_for_again(
    work: WorkQueue, receiver: Receiver, database_name: str, code: int
) -> None:
    task = work.insert("in", b"raw")
    receiver.answers += [(code, {}, b""), (204, {}, b"")]

    run(work, post_to(receiver.url))

    assert [(key, body) for key, _, body in receiver.got] == [(task.id, b"raw")] * 2
    assert work.queues() == {}


@needs.any_database
@pytest.mark.parametrize("code", [404, 422, 301])
def test_an_answer_that_stays_gives_the_task_up(
    work: WorkQueue, receiver: Receiver, database_name: str, code: int
) -> None:
    work.insert("in")
    receiver.answers += [(code, {}, b"")]

    run(work, post_to(receiver.url))

    [failed] = work.tasks("in/err")
    assert f"answered {code}" in failed.err


@needs.any_database
def test_a_receiver_says_how_long_it_needs(
    work: WorkQueue, receiver: Receiver, database_name: str
) -> None:
    work.insert("in")
    receiver.answers += [(503, {"Retry-After": "3600"}, b"")]

    run(work, post_to(receiver.url))

    [later] = work.tasks("in")
    assert 3_500 < (later.at - later.modified).total_seconds() <= 3_600


@needs.any_database
@pytest.mark.parametrize(
    "make",
    [
        lambda: map_to("out", None),  # type: ignore[arg-type]
        lambda: in_batches(None, None),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_function_is_refused(database_name: str, make: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError):
        make()
