"""Workers: transactions that handlers and their modifications share."""

from __future__ import annotations

import asyncio
import threading

import pytest
from sqlalchemy import URL

from queue_core.model.retry_policies import ImmediateRetries
from tests.contract.conftest import Orders
from tests.contract.harness import eventually
from tests.contract.transactions.test_async_twins import _connected
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
