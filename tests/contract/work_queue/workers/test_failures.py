"""Workers: what becomes of tasks whose handlers fail."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any, NoReturn

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from queue_core.errors import CommitUnknownError, DatabaseUnreachableError
from queue_core.model.retry import Failure, GiveUp, RetryLater
from queue_core.model.retry_policies import ImmediateRetries
from tests.contract.harness import BOUND_SECONDS
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.workers.handlers import Start, raises, ran
from work_queue.document import DocClaim
from work_queue.modification import Insert
from work_queue.task import Task
from work_queue.work_queue import WorkQueue
from work_queue.workers.job import Job
from work_queue.workers.requests import FailWorker, MoveTask, StopWorker
from work_queue.workers.worker import Worker


def test_scenario_44_a_failed_task_is_retried_by_the_policy(work: WorkQueue) -> None:
    runs = list[int]()

    def handle(job: Job) -> None:
        runs.append(job.task.attempt)
        raise ValueError("broken")

    task = work.insert("a", 1)
    Worker(work, handle, "a", retry=ImmediateRetries(2)).run(until_empty=True)
    assert runs == [0, 1, 2]
    [moved] = work.tasks("a/err")
    assert (moved.id, moved.value, moved.attempt, moved.claims) == (task.id, 1, 3, 0)
    assert moved.err.startswith("ValueError: broken")
    assert moved.claimant == ""


def test_scenario_44_a_retry_comes_when_its_handler_says(work: WorkQueue) -> None:
    task = ran(work, RetryLater(60, "closed"), retry=ImmediateRetries(0))
    assert (task.queue, task.attempt, task.claims, task.err) == ("a", 1, 0, "closed, in 60 s")
    assert 58 < (task.at - task.modified).total_seconds() <= 60


def test_a_move_to_the_queue_where_a_task_is_lets_it_wait(work: WorkQueue) -> None:
    """It would run again at once, and for ever."""
    task = ran(work, MoveTask("a", "not yet"))
    assert (task.queue, task.attempt, task.err) == ("a", 1, "not yet")
    assert 59 < (task.at - task.modified).total_seconds() <= 60


@pytest.mark.parametrize(("most", "queue"), [(3, "a"), (1, "a/err")])
def test_scenario_44_attempts_have_a_limit(work: WorkQueue, most: int, queue: str) -> None:
    assert ran(work, RetryLater(0), max_attempts=most).queue == queue


@pytest.mark.parametrize(
    ("given", "queue"), [(None, "a/err"), ("failed", "failed"), (lambda name: f"no-{name}", "no-a")]
)
def test_who_gives_up_lands_in_the_error_queue(work: WorkQueue, given: Any, queue: str) -> None:
    task = ran(work, GiveUp("no\0such"), error_queue=given)
    assert (task.queue, task.err, task.attempt) == (queue, "no\\0such", 1)


def test_scenario_45_a_task_is_moved_with_the_reason(work: WorkQueue) -> None:
    task = ran(work, MoveTask("b", "not ours"))
    assert (task.queue, task.err, task.attempt, task.claims) == ("b", "not ours", 1, 0)


def test_a_reason_may_be_an_error(work: WorkQueue) -> None:
    reason: Any = ValueError("not ours")
    assert ran(work, MoveTask("b", reason)).err == "not ours"


class Mute:
    """Something whose text can't be told."""

    def __str__(self) -> str:
        raise RuntimeError


def test_a_reason_that_can_not_be_told_ends_no_worker(work: WorkQueue) -> None:
    task = ran(work, GiveUp(Mute()))
    assert task.queue == "a/err"
    assert task.err.startswith("GiveUp: its text can't be told (RuntimeError)")


@pytest.mark.parametrize(
    "queue", [None, 5, "", "q" * 513], ids=["none", "a number", "empty", "too long"]
)
def test_a_move_to_no_queue_is_a_failure(work: WorkQueue, queue: Any) -> None:
    def handle(_job: Job) -> NoReturn:
        raise MoveTask(queue)

    work.insert("a")
    Worker(work, handle, "a", max_attempts=1).run(limit=1)
    [moved] = work.tasks("a/err")
    assert moved.err.startswith("InvalidRequestError: queue=")


@dataclass(frozen=True)
class Named:
    """A retry policy that notes its thread."""

    threads: list[str]

    def next_date(self, failure: Failure) -> None:
        del failure
        self.threads.append(threading.current_thread().name)


def test_what_decides_of_a_failed_task_runs_off_the_event_loop(work: WorkQueue) -> None:
    policy = Named([])

    def error_queue(_queue: str) -> str:
        policy.threads.append(threading.current_thread().name)
        return "failed"

    assert ran(work, ValueError(), retry=policy, error_queue=error_queue).queue == "failed"
    assert policy.threads == ["work_queue-failure"] * 2


def test_scenario_45_a_fatal_error_ends_the_worker_and_leaves_the_task(work: WorkQueue) -> None:
    task = work.insert("a")
    with pytest.raises(FailWorker, match="disk full"):
        Worker(work, raises(FailWorker("disk full")), "a").run()
    [left] = work.tasks("a")
    assert (left.version, left.claims, left.attempt) == (task.version + 1, 1, 0)
    assert left.at > work.time()


def test_scenario_52_a_handler_stops_its_worker_and_gives_the_task_back(work: WorkQueue) -> None:
    failed = work.insert("a", 1, attempt=2, err="broken").id
    for _ in range(3):
        work.modify(work.claim("a", timeout_seconds=BOUND_SECONDS).release())
    work.insert("a", 2)
    docs = DocClaim("n", "k")
    Worker(work, raises(StopWorker()), "a", docs=lambda _: [docs]).run()
    [task, other] = work.tasks("a")
    if task.id != failed:  # released now, so it may have become the second
        task, other = other, task
    assert (task.id, task.value, task.version) == (failed, 1, 8)
    assert (task.claims, task.attempt, task.err, task.claimant) == (0, 2, "broken", "")
    assert (other.version, other.claims) == (0, 0)
    assert work.try_claim("a", "b") is not None
    assert [held.version for held in work.claim_docs(docs, claimant="another")] == [3]


def test_scenario_50_a_task_that_was_claimed_too_often_is_moved(work: WorkQueue) -> None:
    work.insert("a")
    for _ in range(2):
        task = work.claim("a", timeout_seconds=BOUND_SECONDS)
        work.modify(task.release())
    Worker(work, raises(AssertionError()), "a", max_claims=2).run(until_empty=True)
    [moved] = work.tasks("a/err")
    assert (moved.claims, moved.attempt) == (0, 1)
    assert moved.err == "claimed 3 times, and none of the last 2 claims led to an end"


LONG = "x" * 1_000


@pytest.mark.parametrize(
    ("error", "queue", "attempt"),
    [
        (ValueError(), "a", 1),
        (GiveUp(), "a/err", 1),
        (MoveTask("b"), "b", 1),
        (StopWorker(), "a", 0),
    ],
)
def test_a_value_that_the_worker_may_not_write_goes_with_its_task(
    make_work: MakeWork, error: Exception, queue: str, attempt: int
) -> None:
    task = make_work().insert("a", LONG)
    work = make_work(max_value_bytes=100)
    worker = Worker(work, raises(error), "a", retry=ImmediateRetries(5))
    worker.run(limit=1, until_empty=True)
    [left] = work.tasks(ids=[task.id])
    assert (left.queue, left.attempt, left.value) == (queue, attempt, LONG)
    assert (left.claimant, left.claims) == ("", 0)


def test_a_value_that_the_worker_may_not_write_is_put_off_and_quarantined(
    make_work: MakeWork,
) -> None:
    task = make_work().insert("a", LONG)
    work = make_work(max_value_bytes=100)
    docs = DocClaim("n", "k")
    held = work.claim_docs(docs, claimant="another")

    def docs_of(_task: Task) -> list[DocClaim]:
        worker.stop()
        return [docs]

    worker = Worker(work, raises(AssertionError()), "a", docs=docs_of)
    worker.run()
    [left] = work.tasks("a")
    assert (left.attempt, left.claims, left.value) == (0, 0, LONG)
    work.modify(*(one.release() for one in held), claimant="another")
    for _ in range(2):
        work.modify(work.claim("a", timeout_seconds=BOUND_SECONDS).release())
    Worker(work, raises(AssertionError()), "a", max_claims=2).run(limit=1)
    [moved] = work.tasks("a/err")
    assert (moved.id, moved.value) == (task.id, LONG)


@pytest.mark.parametrize("claims", [1, 7])
def test_a_task_whose_error_queue_has_too_long_a_name_is_put_off(
    work: WorkQueue, caplog: pytest.LogCaptureFixture, claims: int
) -> None:
    queue = "q" * 510
    task = work.insert(queue, 1)
    for _ in range(claims - 1):
        work.modify(work.claim(queue, timeout_seconds=BOUND_SECONDS).release())
    Worker(work, raises(GiveUp("bad")), queue).run(limit=1)
    [left] = work.tasks(queue)
    assert 59 < (left.at - left.modified).total_seconds() <= 60
    assert (left.value, left.claims) == (1, 7 if claims == 7 else 0)
    assert (left.attempt, left.err) == ((0, "") if claims == 7 else (1, "bad"))
    [told] = [record for record in caplog.records if "task_not_moved" in record.getMessage()]
    assert told.levelname == "ERROR"
    assert task.id in told.getMessage()


def _raises(_queue: str) -> str:
    raise KeyError("no such queue")


@pytest.mark.parametrize("error_queue", [_raises, lambda _queue: None, lambda queue: queue])
@pytest.mark.parametrize("claims", [1, 7])
def test_an_error_queue_that_can_not_be_told_is_the_default_one(
    work: WorkQueue, caplog: pytest.LogCaptureFixture, claims: int, error_queue: Any
) -> None:
    work.insert("a", 1)
    for _ in range(claims - 1):
        work.modify(work.claim("a", timeout_seconds=BOUND_SECONDS).release())
    Worker(work, raises(GiveUp("bad")), "a", error_queue=error_queue).run(limit=1)
    [moved] = work.tasks("a/err")
    assert moved.attempt == 1
    [told] = [record for record in caplog.records if "error_queue_failed" in record.getMessage()]
    assert told.levelname == "ERROR"


def test_scenario_47_a_refused_dependency_is_a_failure(work: WorkQueue) -> None:
    config = work.insert("config")
    work.modify(config.change())
    work.insert("a")
    Worker(work, lambda _: config.depend(), "a", retry=ImmediateRetries(1)).run(until_empty=True)
    [moved] = work.tasks("a/err")
    assert moved.attempt == 2
    assert "DependencyError" in moved.err


@pytest.mark.parametrize(
    "error",
    [
        DatabaseUnreachableError("gone"),
        CommitUnknownError("gone"),
        PoolTimeoutError("none free"),
        OperationalError("UPDATE", {}, Exception("locked")),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("call", ["modify", "claim_docs"])
def test_a_task_is_left_to_the_end_of_its_lease_if_the_database_does_not_answer(
    work: WorkQueue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    call: str,
    error: Exception,
) -> None:
    runs = list[int]()

    def fails_once(*_given: Any, **_options: Any) -> NoReturn:
        monkeypatch.undo()
        raise error

    def handle(job: Job) -> None:
        runs.append(job.task.attempt)

    work.insert("a")
    worker = Worker(work, handle, "a", docs=lambda _: [DocClaim("n", "k")], max_attempts=1)
    monkeypatch.setattr(work, call, fails_once)
    worker.run(limit=1)
    [left] = work.tasks("a")
    assert (left.version, left.claims, left.attempt, left.err) == (1, 1, 0, "")
    assert left.at > work.time()
    assert len(runs) == (call == "modify")
    assert "task_left" in caplog.text


@pytest.mark.parametrize("claims", [1, 7])
@pytest.mark.parametrize("error", [ValueError(), GiveUp()], ids=lambda error: type(error).__name__)
def test_nothing_tells_of_a_retry_or_move_that_was_not_written(
    work: WorkQueue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    claims: int,
) -> None:
    def fails(*_given: Any, **_options: Any) -> NoReturn:
        raise DatabaseUnreachableError("gone")

    work.insert("a")
    for _ in range(claims - 1):
        work.modify(work.claim("a", timeout_seconds=BOUND_SECONDS).release())
    with monkeypatch.context() as away:
        away.setattr(work, "modify", fails)
        Worker(work, raises(error), "a").run(limit=1)
    assert work.queues() == {"a": 1}
    assert "task_left" in caplog.text
    assert not {"task_retried", "task_moved"} & {*caplog.text.split()}


@pytest.mark.parametrize(
    "error",
    [DatabaseUnreachableError("theirs"), OperationalError("SELECT", {}, Exception("theirs"))],
    ids=lambda error: type(error).__name__,
)
def test_what_a_handler_says_of_a_database_is_its_failure(
    work: WorkQueue, error: Exception
) -> None:
    assert ran(work, error, max_attempts=1).queue == "a/err"


def test_a_refusal_that_a_handler_meets_itself_is_its_failure(work: WorkQueue) -> None:
    def handle(job: Job) -> None:
        work.modify(job.task.delete(), claimant="another")

    work.insert("a")
    Worker(work, handle, "a", max_attempts=1).run(limit=1)
    [moved] = work.tasks("a/err")
    assert moved.err.startswith("DependencyError")


# On a slow machine the time of a second run may be over before it begins: it has another then.
@pytest.mark.parametrize("retries", [0, 50])
def test_scenario_51_a_run_that_takes_too_long_has_failed(
    work: WorkQueue, retries: int, start: Start
) -> None:
    given_up, tried = threading.Event(), list[int]()

    def handle(job: Job) -> Insert | None:
        tried.append(job.task.attempt)
        if len(tried) > 1:
            return None
        assert job.wait(BOUND_SECONDS)
        given_up.set()
        return Insert(queue="b")

    work.insert("a")
    worker = Worker(work, handle, "a", retry=ImmediateRetries(retries), max_run_seconds=0.2)
    start(worker, until_empty=True).result(BOUND_SECONDS)
    assert given_up.wait(BOUND_SECONDS)
    assert work.queues() == ({} if retries else {"a/err": 1})
    if not retries:
        assert "TimeoutError" in work.tasks("a/err")[0].err


def test_scenario_51_a_coroutine_that_takes_too_long_is_cancelled(work: WorkQueue) -> None:
    cancelled = list[bool]()

    async def handle(_job: Job) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    work.insert("a")
    Worker(work, handle, "a", retry=ImmediateRetries(0), max_run_seconds=0.2).run(until_empty=True)
    assert cancelled == [True]
    assert work.queues() == {"a/err": 1}
