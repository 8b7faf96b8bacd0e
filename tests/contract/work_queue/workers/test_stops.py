"""Workers: how their runs begin and end."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import Any, NoReturn

import pytest
from sqlalchemy import URL, create_engine, event, select
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from queue_core.errors import (
    ConfigurationError,
    DatabaseUnreachableError,
    InvalidRequestError,
    LifecycleError,
)
from queue_core.model.retry import GiveUp
from queue_core.model.retry_policies import Circuit, ImmediateRetries
from tests import requirements as needs
from tests.contract.conftest import Orders
from tests.contract.harness import BOUND_SECONDS
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.workers.handlers import Start, raises
from work_queue.document import DocClaim
from work_queue.modification import Change, Insert
from work_queue.task import Task
from work_queue.work_queue import WorkQueue
from work_queue.workers import loop, run
from work_queue.workers.job import Job
from work_queue.workers.worker import Worker


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
    assert (task.claimant, task.attempt, task.claims) == ("", 0, 0)
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


def test_what_a_handler_inserts_runs_beside_one_another_too(work: WorkQueue) -> None:
    """The queue was empty for all but one of the worker's handlers."""
    together = threading.Barrier(3, timeout=BOUND_SECONDS)

    def handle(job: Job) -> list[Insert] | None:
        if job.task.value == "first":
            return [Insert(queue="a") for _ in range(3)]
        together.wait()
        return None

    work.insert("a", "first")
    Worker(work, handle, "a", concurrency=3, retry=ImmediateRetries(0)).run(until_empty=True)
    assert work.queues() == {}


def test_what_comes_while_a_handler_runs_is_run_beside_it(work: WorkQueue) -> None:
    other = threading.Event()

    def handle(job: Job) -> None:
        if job.task.value == "first":
            work.insert("a", delay=0.05)
            assert other.wait(BOUND_SECONDS)
        other.set()

    work.insert("a", "first")
    worker = Worker(work, handle, "a", concurrency=3, retry=ImmediateRetries(0))
    worker.run(until_empty=True, limit=3)
    assert work.queues() == {}


def test_all_idle_handlers_take_what_comes_while_another_runs(work: WorkQueue) -> None:
    together, begun = threading.Barrier(8, timeout=BOUND_SECONDS), list[float]()

    def handle(job: Job) -> None:
        if job.task.value == "first":
            job.wait(0.5)  # the others have found nothing by then
            work.modify(*(Insert(queue="a") for _ in range(7)))
        else:
            begun.append(time.monotonic())
        together.wait()

    work.insert("a", "first")
    Worker(work, handle, "a", concurrency=8, retry=ImmediateRetries(0)).run(until_empty=True)
    assert work.queues() == {}
    assert max(begun) - min(begun) < 3


def test_few_claims_are_tried_while_a_limit_is_reached(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, given = list[object](), work.try_claim_async

    async def tries(*queues: str, **options: Any) -> Task | None:
        tried.append(queues)
        return await given(*queues, **options)

    def handle(job: Job) -> None:
        job.wait(1.5)

    monkeypatch.setattr(work, "try_claim_async", tries)
    work.limit("a", concurrency=1)
    work.modify(*(Insert(queue="a") for _ in range(2)))
    Worker(work, handle, "a", concurrency=8).run(until_empty=True)
    assert work.queues() == {}
    assert len(tried) < 45


@pytest.mark.parametrize("options", [{"until_empty": True}, {"limit": 4}], ids=str)
def test_a_worker_does_not_end_before_tasks_that_waited_for_docs_of_others(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    values = list[int]()

    def handle(job: Job) -> None:
        values.append(job.task.value)
        job.wait(0.1)

    monkeypatch.setattr(run, "CONTENTION_SECONDS", 0.2)
    work.modify(*(Insert(queue="a", value=value) for value in range(4)))
    worker = Worker(work, handle, "a", docs=lambda _: [DocClaim("n", "k")], concurrency=4)
    worker.run(**options)
    assert sorted(values) == [0, 1, 2, 3]
    assert work.queues() == {}


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_an_exit_in_a_handler_ends_the_worker_when_the_others_have_ended(
    work: WorkQueue, error: BaseException
) -> None:
    begun = threading.Event()

    def handle(job: Job) -> Insert:
        if job.task.value == "exits":
            assert begun.wait(BOUND_SECONDS)
            raise error
        begun.set()
        job.wait(0.3)
        return Insert(queue="b")

    work.modify(Insert(queue="a", value="exits"), Insert(queue="a"))
    with pytest.raises(type(error)):
        Worker(work, handle, "a", concurrency=2).run()
    assert work.queues() == {"a": 1, "b": 1}
    [left] = work.tasks("a")
    assert (left.value, left.version, left.attempt) == ("exits", 1, 0)


def test_an_exit_in_a_coroutine_ends_the_worker_when_the_others_have_ended(
    work: WorkQueue,
) -> None:
    async def run_it() -> None:
        begun = asyncio.Event()

        async def handle(job: Job) -> Insert:
            if job.task.value == "exits":
                await begun.wait()
                raise SystemExit(3)
            begun.set()
            await asyncio.sleep(0.3)
            return Insert(queue="b")

        await Worker(work, handle, "a", concurrency=2).run_async()

    work.modify(Insert(queue="a", value="exits"), Insert(queue="a"))
    with pytest.raises(SystemExit):
        asyncio.run(run_it())
    assert work.queues() == {"a": 1, "b": 1}


@pytest.mark.parametrize("part", ["docs", "error_queue"])
def test_an_exit_in_another_function_of_the_user_ends_the_worker_too(
    work: WorkQueue, part: str
) -> None:
    def exits(_given: object) -> NoReturn:
        raise SystemExit(3)

    options: dict[str, Any] = {part: exits}
    work.insert("a")
    with pytest.raises(SystemExit):
        Worker(work, raises(GiveUp()), "a", **options).run()
    assert work.queues() == {"a": 1}


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


@pytest.mark.parametrize("call", ["claim_async", "try_claim_async", "modify"])
@pytest.mark.parametrize(
    "error",
    [DatabaseUnreachableError("gone"), PoolTimeoutError("none free")],
    ids=lambda error: type(error).__name__,
)
def test_a_worker_goes_on_after_a_call_that_did_not_reach_the_database(
    work: WorkQueue, monkeypatch: pytest.MonkeyPatch, call: str, error: Exception
) -> None:
    runs, failures = list[Job](), [error]
    given = getattr(work, call)

    def fails_once(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return given(*arguments, **options)

    def handle(job: Job) -> None:
        runs.append(job)
        raise GiveUp

    work.modify(Insert(queue="a"), Insert(queue="a"))
    monkeypatch.setattr(work, call, fails_once)
    monkeypatch.setattr(loop, "FIRST_PAUSE_SECONDS", 0.01)
    Worker(work, handle, "a").run(limit=2, until_empty=call == "try_claim_async")
    assert len(runs) == 2
    assert not failures


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
    for options in ({}, {"until_empty": True}, {"limit": 1}):
        with pytest.raises(LifecycleError, match="was closed"):
            Worker(work, lambda _: None, "a").run(**options)


def test_a_handler_without_an_argument_is_refused_with_what_it_takes(work: WorkQueue) -> None:
    handler: Any = lambda: None  # noqa: E731
    with pytest.raises(ConfigurationError, match=r"a function that takes 1 argument\."):
        Worker(work, handler, "a")


def test_a_worker_that_would_block_an_event_loop_says_what_to_await(work: WorkQueue) -> None:
    async def blocks() -> None:
        Worker(work, lambda _: None, "a").run(until_empty=True)

    with pytest.raises(LifecycleError, match=r"await worker\.run_async\(\)"):
        asyncio.run(blocks())


async def asynchronous(_given: Any) -> None:
    raise AssertionError


@pytest.mark.parametrize(
    "options",
    [
        {"handler": 5},
        {"handler": lambda: None},
        {"docs": 5},
        {"docs": asynchronous},
        {"retry": 5},
        {"retry": Circuit()},
        {"max_attempts": 0},
        {"max_claims": True},
        {"error_queue": 5},
        {"error_queue": asynchronous},
        {"error_queue": "a"},
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


def test_the_handlers_of_a_worker_claim_by_names_that_begin_with_its_own(
    make_work: MakeWork,
) -> None:
    """So that the rights of a claimant are those of its worker's handlers."""
    name, claimants = "𝄞" * 11 + "ann", list[str]()

    def handle(job: Job) -> None:
        claimants.append(job.task.claimant)

    work = make_work(claimant=name)
    work.insert("a")
    Worker(work, handle, "a").run(limit=1)
    assert claimants[0].startswith(f"{name}#")
    with pytest.raises(ConfigurationError, match="at most 47 bytes in a worker"):
        Worker(make_work(claimant=f"{name}a"), handle, "a")


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
    *,
    begins: bool,
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
