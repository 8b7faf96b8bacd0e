"""Workers: what becomes of tasks that their handlers finish, fail, or lose."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import URL, create_engine, event, select

from queue_core.errors import ConfigurationError, InvalidRequestError, LifecycleError
from queue_core.model.retry import GiveUp, RetryLater
from queue_core.model.retry_policies import Circuit, ImmediateRetries
from tests import requirements as needs
from tests.contract.conftest import Orders
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.transactions.test_async_twins import _connected
from tests.contract.work_queue.conftest import MakeWork
from work_queue.document import DocClaim
from work_queue.faults import DependencyError
from work_queue.modification import Action, Change, Depend, Insert, InsertDoc, Renew
from work_queue.modified import Modified
from work_queue.refs import TaskRef
from work_queue.task import Task
from work_queue.work_queue import WorkQueue
from work_queue.workers.job import Job
from work_queue.workers.lease import Lease
from work_queue.workers.requests import FailWorker, MoveTask, StopWorker
from work_queue.workers.worker import Worker

SHORT = 0.9
"""A lease whose renewal a test can wait for."""
Start = Callable[..., "Future[None]"]


@pytest.fixture
def work(make_work: MakeWork) -> WorkQueue:
    return make_work(claimant="me")


@pytest.fixture
def start() -> Iterator[Start]:
    """Runs a worker in a thread, and stops it in the end."""
    started = list[Worker]()
    with ThreadPoolExecutor(4) as pool:

        def begin(worker: Worker, **options: Any) -> Future[None]:
            started.append(worker)
            return pool.submit(worker.run, **options)

        yield begin
        for worker in started:
            worker.stop(0)


def raises(error: BaseException) -> Callable[[Job], None]:
    def handle(_job: Job) -> None:
        raise error

    return handle


def ran(work: WorkQueue, error: BaseException, **options: Any) -> Task:
    """Insert a task, run it once with a handler that raises, and return what it is then."""
    task = work.insert("a", 1)
    Worker(work, raises(error), "a", **options).run(limit=1, until_empty=True)
    return work.tasks(ids=[task.id])[0]


# -- what handlers return -------------------------------------------------------------------------


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


# -- failures -------------------------------------------------------------------------------------


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


def test_scenario_45_a_fatal_error_ends_the_worker_and_leaves_the_task(work: WorkQueue) -> None:
    task = work.insert("a")
    with pytest.raises(FailWorker, match="disk full"):
        Worker(work, raises(FailWorker("disk full")), "a").run()
    [left] = work.tasks("a")
    assert (left.version, left.claims, left.attempt) == (task.version + 1, 1, 0)
    assert left.at > work.time()


def test_scenario_52_a_handler_stops_its_worker_and_gives_the_task_back(work: WorkQueue) -> None:
    work.insert("b")
    task = ran(work, StopWorker())
    assert (task.claims, task.attempt, task.claimant) == (0, 0, "")
    assert work.try_claim("a") is not None


def test_scenario_50_a_task_that_was_claimed_too_often_is_moved(work: WorkQueue) -> None:
    work.insert("a")
    for _ in range(2):
        task = work.claim("a", timeout_seconds=BOUND_SECONDS)
        work.modify(task.release())
    Worker(work, raises(AssertionError()), "a", max_claims=2).run(until_empty=True)
    [moved] = work.tasks("a/err")
    assert (moved.claims, moved.attempt) == (0, 1)
    assert moved.err == "claimed 3 times, of which the last 2 led to no end"


def test_scenario_47_a_refused_dependency_is_a_failure(work: WorkQueue) -> None:
    config = work.insert("config")
    work.modify(config.change())
    work.insert("a")
    Worker(work, lambda _: config.depend(), "a", retry=ImmediateRetries(1)).run(until_empty=True)
    [moved] = work.tasks("a/err")
    assert moved.attempt == 2
    assert "DependencyError" in moved.err


@pytest.mark.parametrize("most", [1, 2])
def test_scenario_51_a_run_that_takes_too_long_has_failed(
    work: WorkQueue, most: int, start: Start
) -> None:
    given_up, tried = threading.Event(), list[int]()

    def handle(job: Job) -> Insert | None:
        tried.append(job.task.attempt)
        if len(tried) == 2:
            return None
        assert job.wait(BOUND_SECONDS)
        given_up.set()
        return Insert(queue="b")

    work.insert("a")
    worker = Worker(work, handle, "a", retry=ImmediateRetries(most - 1), max_run_seconds=0.2)
    start(worker, until_empty=True).result(BOUND_SECONDS)
    assert given_up.wait(BOUND_SECONDS)
    assert work.queues() == ({"a/err": 1} if most == 1 else {})
    if most == 1:
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


# -- leases ---------------------------------------------------------------------------------------


def test_scenario_46_task_and_docs_are_renewed_together(work: WorkQueue) -> None:
    work.modify(InsertDoc(namespace="n", key="k", content=1))
    work.insert("a")

    def handle(job: Job) -> list[Action]:
        eventually(lambda: work.tasks("a")[0].version >= 3, "two renewals")
        assert work.tasks("a")[0].at == work.docs("n")[0].at
        assert work.try_claim("a", claimant="other") is None
        return [job.task.change(queue="b"), job.sets[0].docs[0].change(2)]

    def docs(_task: Task) -> list[DocClaim]:
        return [DocClaim("n", "k")]

    worker = Worker(work, handle, "a", docs=docs, lease_seconds=SHORT, retry=ImmediateRetries(0))
    worker.run(until_empty=True)
    assert work.queues() == {"b": 1}
    [doc] = work.docs("n")
    assert (doc.content, doc.claimant) == (2, "")


@pytest.mark.parametrize("ends", [Task.delete, lambda task: task.change(queue="taken")])
def test_scenario_48_a_lost_lease_cancels_the_handler(
    work: WorkQueue, ends: Callable[[Task], Action]
) -> None:
    seen = list[str]()

    async def handle(job: Job) -> Insert | None:
        if job.task.value == "other":
            return None
        await work.modify_async(ends(job.task), claimant=job.task.claimant)
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
        work.modify(job.task.change(queue="taken"), claimant=job.task.claimant)
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


def test_a_task_whose_docs_are_held_is_put_off(work: WorkQueue) -> None:
    work.claim_docs(DocClaim("n", "k"), claimant="other")
    work.insert("a")
    worker = Worker(work, raises(AssertionError()), "a", docs=lambda _: [DocClaim("n", "k")])
    worker.run(limit=1)
    [task] = work.tasks("a")
    assert (task.attempt, task.claims, task.err) == (0, 0, "")
    assert 0.7 < (task.at - task.modified).total_seconds() <= 1


# -- transactions ---------------------------------------------------------------------------------


@pytest.mark.database_only
@pytest.mark.parametrize("fails", [None, "handler", "modification"])
def test_scenario_85_the_handlers_sql_commits_with_its_modification(
    work: WorkQueue, orders: Orders, fails: str | None
) -> None:
    def handle(job: Job) -> Action:
        job.connection.execute(orders.add(job.task.value))
        if fails == "handler":
            raise ValueError
        return Depend(TaskRef("none", 0)) if fails else Insert(queue="b")

    work.insert("a", 7)
    worker = Worker(work, handle, "a", engine=orders.engine, retry=ImmediateRetries(0))
    worker.run(until_empty=True)
    assert orders.numbers() == ([] if fails else [7])
    assert work.queues() == ({"a/err": 1} if fails else {"b": 1})


@pytest.mark.database_only
def test_a_handler_that_lost_its_lease_rolls_back(work: WorkQueue, orders: Orders) -> None:
    left = threading.Event()

    def handle(job: Job) -> None:
        work.modify(job.task.change(queue="taken"), claimant=job.task.claimant)
        job.connection.execute(orders.add(7))
        left.set()

    work.insert("a")
    Worker(work, handle, "a", engine=orders.engine).run(limit=1)
    assert left.is_set()
    assert orders.numbers() == []
    assert work.queues() == {"taken": 1}


@pytest.mark.database_only
def test_a_renewal_during_the_handlers_transaction_loses_nothing(
    work: WorkQueue, orders: Orders
) -> None:
    def handle(job: Job) -> Insert:
        job.connection.execute(orders.add(7))
        # On a database of one writer, the renewal waits for this transaction by then.
        eventually(lambda: work.time() > job.task.at, "the end of the first lease")
        return Insert(queue="b")

    work.insert("a")
    worker = Worker(
        work, handle, "a", engine=orders.engine, lease_seconds=SHORT, retry=ImmediateRetries(0)
    )
    worker.run(limit=1)
    assert orders.numbers() == [7]
    assert work.queues() == {"b": 1}


@pytest.mark.database_only
@pytest.mark.parametrize("fails", [False, True])
def test_a_coroutines_sql_commits_with_its_modification(
    work: WorkQueue,
    orders: Orders,
    database_url: URL,
    fails: bool,  # noqa: FBT001 -- a parameter of the test
) -> None:
    async def handle(job: Job) -> Insert:
        await job.connection.execute(orders.add(job.task.value))
        if fails:
            raise ValueError
        return Insert(queue="b")

    async def run() -> None:
        async with _connected(database_url) as engine:
            worker = Worker(work, handle, "a", engine=engine, retry=ImmediateRetries(0))
            await worker.run_async(until_empty=True)

    work.insert("a", 7)
    asyncio.run(run())
    assert orders.numbers() == ([] if fails else [7])
    assert work.queues() == ({"a/err": 1} if fails else {"b": 1})


# -- runs and stops -------------------------------------------------------------------------------


def test_scenario_52_a_waiting_worker_stops_at_once(work: WorkQueue, start: Start) -> None:
    begun = threading.Event()
    worker = Worker(work, lambda _: begun.set(), "a", "b", concurrency=3)
    running = start(worker)
    work.insert("b")
    assert begun.wait(BOUND_SECONDS)
    worker.stop()
    running.result(BOUND_SECONDS)
    work.insert("a")
    worker.run()  # a worker that was stopped stays so
    assert work.try_claim("a") is not None


def test_a_stop_lets_running_handlers_finish(work: WorkQueue, start: Start) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def handle(_job: Job) -> Insert:
        begun.set()
        assert may_end.wait(BOUND_SECONDS)
        return Insert(queue="b")

    work.modify(Insert(queue="a"), Insert(queue="a"))
    worker = Worker(work, handle, "a")
    running = start(worker)
    assert begun.wait(BOUND_SECONDS)
    worker.stop(BOUND_SECONDS)
    assert not running.done()
    may_end.set()
    running.result(BOUND_SECONDS)
    assert work.queues() == {"a": 1, "b": 1}


def test_a_stop_gives_back_what_does_not_end_in_time(work: WorkQueue, start: Start) -> None:
    begun = threading.Event()

    def handle(job: Job) -> Insert:
        begun.set()
        assert job.wait(BOUND_SECONDS)
        return Insert(queue="b")

    work.insert("a")
    worker = Worker(work, handle, "a")
    running = start(worker)
    assert begun.wait(BOUND_SECONDS)
    worker.stop(0.1)
    running.result(BOUND_SECONDS)
    [task] = work.tasks("a")
    assert (task.claimant, task.attempt) == ("", 0)
    assert work.try_claim("a") is not None
    assert "b" not in work.queues()


def test_a_handler_stops_its_worker_and_its_result_is_written(work: WorkQueue) -> None:
    work.modify(Insert(queue="a"), Insert(queue="a"))

    def handle(_job: Job) -> Insert:
        worker.stop()
        return Insert(queue="b")

    worker = Worker(work, handle, "a")
    worker.run()
    assert work.queues() == {"a": 1, "b": 1}


def test_a_run_has_a_limit(work: WorkQueue) -> None:
    work.modify(*(Insert(queue="a") for _ in range(5)))
    Worker(work, lambda _: None, "a", concurrency=3).run(limit=4)
    assert work.queues() == {"a": 1}


def test_handlers_run_beside_one_another(work: WorkQueue) -> None:
    together = threading.Barrier(3, timeout=BOUND_SECONDS)
    work.modify(*(Insert(queue="a") for _ in range(3)))

    def handle(_job: Job) -> None:
        together.wait()

    Worker(work, handle, "a", concurrency=3, retry=ImmediateRetries(0)).run(until_empty=True)
    assert work.queues() == {}


def test_a_cancelled_worker_writes_nothing(work: WorkQueue) -> None:
    work.insert("a")

    async def run() -> None:
        begun = asyncio.Event()

        async def handle(_job: Job) -> None:
            begun.set()
            await asyncio.Event().wait()

        running = asyncio.ensure_future(Worker(work, handle, "a").run_async())
        await asyncio.wait_for(begun.wait(), BOUND_SECONDS)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert running.cancelled()

    asyncio.run(run())
    [task] = work.tasks("a")
    assert (task.version, task.attempt) == (1, 0)


def test_a_worker_runs_once_at_a_time_and_not_on_a_closed_work_queue(
    work: WorkQueue, start: Start
) -> None:
    begun = threading.Event()
    work.insert("a")
    worker = Worker(work, lambda _: begun.set(), "a")
    running = start(worker)
    assert begun.wait(BOUND_SECONDS)
    with pytest.raises(LifecycleError, match="runs already"):
        worker.run()
    work.close()
    with pytest.raises(LifecycleError, match="was closed"):
        running.result(BOUND_SECONDS)


@pytest.mark.parametrize(
    "options",
    [
        {"handler": 5},
        {"handler": lambda: None},
        {"docs": 5},
        {"retry": 5},
        {"retry": Circuit()},
        {"max_attempts": 0},
        {"max_claims": True},
        {"error_queue": 5},
        {"max_run_seconds": 0},
        {"concurrency": 0},
        {"concurrency": None},
        {"engine": 5},
        {"grace_seconds": -1},
    ],
)
def test_what_is_not_allowed(work: WorkQueue, options: dict[str, Any]) -> None:
    given: dict[str, Any] = {"handler": lambda _job: None, **options}
    with pytest.raises(ConfigurationError, match=r"is not allowed\. Allowed"):
        Worker(work, given.pop("handler"), "a", **given)


def test_what_is_not_allowed_of_a_run(work: WorkQueue) -> None:
    with pytest.raises(InvalidRequestError, match="no queue was named"):
        Worker(work, lambda _: None)
    with pytest.raises(InvalidRequestError, match="limit"):
        Worker(work, lambda _: None, "a").run(limit=0)


def test_a_coroutine_function_needs_an_asynchronous_engine(
    work: WorkQueue, database_url: URL
) -> None:
    async def handle(job: Job) -> Change:
        return job.task.change()

    with pytest.raises(ConfigurationError, match="engine"):
        Worker(work, handle, "a", engine=create_engine(database_url))


@pytest.mark.database_only
@needs.one_writer
@pytest.mark.database_only
@pytest.mark.parametrize("begins", [False, True], ids=["by the driver", "at once"])
def test_a_handler_that_reads_before_it_writes_has_its_effect_once(
    work: WorkQueue,
    orders: Orders,
    database_url: URL,
    begins: bool,  # noqa: FBT001 -- a parameter of the test
) -> None:
    """A commit of others between its read and its write fails a run whose snapshot is older."""
    engine, runs = create_engine(database_url), list[int]()
    if begins:
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))

    def handle(job: Job) -> Insert:
        seen = list(job.connection.scalars(select(orders.table.c.number)))
        runs.append(len(seen))
        if len(runs) == 1:
            work.insert("others")
        job.connection.execute(orders.add(41))
        return Insert(queue="done", value=len(seen))

    work.insert("a")
    Worker(work, handle, "a", engine=engine, retry=ImmediateRetries(3)).run(until_empty=True)
    engine.dispose()

    assert orders.numbers() == [41]
    assert [task.value for task in work.tasks("done")] == [0]
    assert work.queues() == {"done": 1, "others": 1}
    assert len(runs) == (2 if begins else 1)
