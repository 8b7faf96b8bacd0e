"""Workers: transactions that handlers and their modifications share."""

from __future__ import annotations

import asyncio
import threading

import pytest
from sqlalchemy import URL, Connection, create_engine, select, text
from sqlalchemy.exc import DBAPIError

from queue_core.model.retry_policies import ImmediateRetries
from tests import requirements as needs
from tests.contract.conftest import Orders
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.transactions.awaited import connected
from tests.contract.work_queue.workers.handlers import SHORT
from work_queue.modification import Action, Depend, Insert
from work_queue.refs import TaskRef
from work_queue.work_queue import WorkQueue
from work_queue.workers.job import Job
from work_queue.workers.worker import Worker


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
@pytest.mark.parametrize("name", ["connection", "async_connection"])
def test_a_job_of_a_worker_without_an_engine_says_that_it_has_no_connection(
    work: WorkQueue, name: str
) -> None:
    work.insert("a")
    worker = Worker(work, lambda job: getattr(job, name), "a", retry=ImmediateRetries(0))
    worker.run(until_empty=True)
    [failed] = work.tasks("a/err")
    assert "Give it engine=" in failed.err


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
    *,
    fails: bool,
) -> None:
    async def handle(job: Job) -> Insert:
        await job.async_connection.execute(orders.add(job.task.value))
        if fails:
            raise ValueError
        return Insert(queue="b")

    async def run() -> None:
        async with connected(database_url) as engine:
            worker = Worker(work, handle, "a", engine=engine, retry=ImmediateRetries(0))
            await worker.run_async(until_empty=True)

    work.insert("a", 7)
    asyncio.run(run())
    assert orders.numbers() == ([] if fails else [7])
    assert work.queues() == ({"a/err": 1} if fails else {"b": 1})


ENDED = "ended its transaction"


@needs.many_writers
@pytest.mark.database_only
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_handler_that_ends_its_transaction_by_a_statement_has_failed(
    work: WorkQueue, orders: Orders, end: str
) -> None:
    def handle(job: Job) -> Insert:
        job.connection.execute(orders.add(7))
        job.connection.execute(text(end))
        job.connection.execute(orders.add(8))
        return Insert(queue="b")

    work.insert("a")
    worker = Worker(work, handle, "a", engine=orders.engine, retry=ImmediateRetries(0))
    worker.run(until_empty=True)
    assert work.queues() == {"a/err": 1}
    assert ENDED in work.tasks("a/err")[0].err
    assert orders.numbers() == ([7] if end == "COMMIT" else [])


@needs.many_writers
@pytest.mark.database_only
def test_a_coroutine_that_ends_its_transaction_by_a_statement_has_failed(
    work: WorkQueue, orders: Orders, database_url: URL
) -> None:
    async def handle(job: Job) -> Insert:
        await job.async_connection.execute(orders.add(7))
        await job.async_connection.execute(text("ROLLBACK"))
        return Insert(queue="b")

    async def run() -> None:
        async with connected(database_url) as engine:
            worker = Worker(work, handle, "a", engine=engine, retry=ImmediateRetries(0))
            await worker.run_async(until_empty=True)

    work.insert("a")
    asyncio.run(run())
    assert ENDED in work.tasks("a/err")[0].err
    assert orders.numbers() == []


@pytest.mark.database_only
def test_handlers_that_wait_for_a_connection_are_not_to_blame(
    work: WorkQueue, database_url: URL, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine has one, and three handlers want it."""
    claims = list[tuple[int, int]]()

    def handle(job: Job) -> None:
        claims.append((job.task.value, job.task.claims))
        job.wait(0.5)

    engine = create_engine(database_url, pool_size=1, max_overflow=0, pool_timeout=0.05)
    work.modify(*(Insert(queue="a", value=value) for value in range(4)))
    Worker(work, handle, "a", engine=engine, concurrency=3, max_claims=1).run(until_empty=True)
    engine.dispose()
    assert sorted(claims) == [(value, 1) for value in range(4)]
    assert work.queues() == {}
    assert "no_connection" in caplog.text


@needs.undone_by_deadlock
@pytest.mark.database_only
def test_a_handler_that_goes_on_after_a_deadlock_has_failed(
    work: WorkQueue, orders: Orders
) -> None:
    """MariaDB and MySQL roll back its writes, and the next statement begins a transaction."""
    met = list[DBAPIError]()
    with orders.engine.begin() as connection:
        connection.execute(orders.add(1))
        connection.execute(orders.add(2))
    rows, half, waits = orders.table, threading.Event(), threading.Event()

    def lock(connection: Connection, number: int) -> None:
        connection.execute(select(rows).where(rows.c.number == number).with_for_update()).all()

    def handle(job: Job) -> None:
        job.connection.execute(orders.add(7))
        lock(job.connection, 1)
        half.set()
        waits.wait(BOUND_SECONDS)
        try:
            while not met:
                lock(job.connection, 2)
        except DBAPIError as error:
            met.append(error)

    def opponent() -> None:
        half.wait(BOUND_SECONDS)
        with orders.engine.begin() as other:
            # It has written more, so that the handler is the victim.
            for number in range(10, 60):
                other.execute(orders.add(number))
            lock(other, 2)
            waits.set()
            lock(other, 1)

    thread = threading.Thread(target=opponent)
    thread.start()
    work.insert("a")
    worker = Worker(work, handle, "a", engine=orders.engine, retry=ImmediateRetries(0))
    worker.run(until_empty=True)
    thread.join(BOUND_SECONDS)
    assert met
    assert 7 not in orders.numbers()
    assert ENDED in work.tasks("a/err")[0].err
