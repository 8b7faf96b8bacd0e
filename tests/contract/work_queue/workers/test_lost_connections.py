"""Workers: a handler's transaction whose connection is lost is no failure of the task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from sqlalchemy import URL, Connection, create_engine, event, make_url, text
from sqlalchemy.exc import PendingRollbackError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from tests import requirements as needs
from tests.contract.conftest import Orders
from tests.contract.harness import eventually
from tests.contract.server_sessions import KILL, sessions
from tests.contract.transactions.awaited import connected
from work_queue.modification import Insert
from work_queue.work_queue import WorkQueue
from work_queue.workers.job import Job
from work_queue.workers.worker import Worker

pytestmark = pytest.mark.database_only

NOWHERE = make_url("postgresql+psycopg://127.0.0.1:1/nowhere")
OWN_SESSION = {
    "postgresql": "SELECT pg_backend_pid()",
    "mariadb": "SELECT connection_id()",
    "mysql": "SELECT connection_id()",
}


def is_left(work: WorkQueue, log: pytest.LogCaptureFixture) -> bool:
    """Whether the task waits for the end of its lease, without a failure."""
    assert work.queues() == {"a": 1}
    [task] = work.tasks("a")
    assert (task.version, task.claims, task.attempt, task.err) == (1, 1, 0, "")
    return "task_left" in log.text and "task_moved" not in log.text


def is_put_off(work: WorkQueue, log: pytest.LogCaptureFixture) -> bool:
    """Whether the task comes back soon, without a failure and without a claim."""
    [task] = work.tasks("a")
    assert (task.version, task.claims, task.attempt, task.err) == (2, 0, 0, "")
    assert (task.at - task.modified).total_seconds() <= 1
    return "no_connection" in log.text


def killing(database_name: str, url: URL) -> Callable[[Connection], None]:
    """Ends the session of a connection, at the server."""

    def kill(connection: Connection) -> None:
        number = connection.execute(text(OWN_SESSION[database_name])).scalar_one()
        with create_engine(url, poolclass=NullPool).connect() as other:
            other.execute(text(KILL[database_name].format(number)))
        eventually(lambda: number not in sessions(connection.engine, database_name), "it ends")

    return kill


def test_a_handler_without_a_connection_has_not_failed(
    work: WorkQueue, caplog: pytest.LogCaptureFixture
) -> None:
    runs = list[Job]()
    work.insert("a")
    engine = create_engine(NOWHERE)
    worker = Worker(work, runs.append, "a", engine=engine, max_attempts=1)
    event.listen(engine, "do_connect", lambda *_: worker.stop())
    worker.run()
    assert is_put_off(work, caplog)
    assert runs == []


def test_a_coroutine_without_a_connection_has_not_failed(
    work: WorkQueue, caplog: pytest.LogCaptureFixture
) -> None:
    runs = list[Job]()

    async def handle(job: Job) -> None:
        runs.append(job)

    work.insert("a")
    engine = create_async_engine(NOWHERE)
    worker = Worker(work, handle, "a", engine=engine, max_attempts=1)
    event.listen(engine.sync_engine, "do_connect", lambda *_: worker.stop())
    worker.run()
    assert is_put_off(work, caplog)
    assert runs == []


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_handler_that_loses_its_connection_has_not_failed(
    work: WorkQueue,
    orders: Orders,
    caplog: pytest.LogCaptureFixture,
    *,
    goes_on: bool,
) -> None:
    def handle(job: Job) -> Insert:
        job.connection.invalidate()
        if not goes_on:
            job.connection.execute(orders.add(7))
        return Insert(queue="b")

    work.insert("a")
    Worker(work, handle, "a", engine=orders.engine, max_attempts=1).run(limit=1)
    assert is_left(work, caplog)
    assert orders.numbers() == []


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_coroutine_that_loses_its_connection_has_not_failed(
    work: WorkQueue,
    orders: Orders,
    database_url: URL,
    caplog: pytest.LogCaptureFixture,
    *,
    goes_on: bool,
) -> None:
    async def handle(job: Job) -> Insert:
        await job.async_connection.invalidate()
        if not goes_on:
            await job.async_connection.execute(orders.add(7))
        return Insert(queue="b")

    async def run() -> None:
        async with connected(database_url) as engine:
            await Worker(work, handle, "a", engine=engine, max_attempts=1).run_async(limit=1)

    work.insert("a")
    asyncio.run(run())
    assert is_left(work, caplog)
    assert orders.numbers() == []


def test_the_loss_of_another_connection_is_the_handlers_failure(
    work: WorkQueue, orders: Orders
) -> None:
    def handle(_job: Job) -> None:
        with orders.engine.begin() as another:
            another.invalidate()
            another.execute(orders.add(7))

    work.insert("a")
    Worker(work, handle, "a", engine=orders.engine, max_attempts=1).run(limit=1)
    [failed] = work.tasks("a/err")
    assert failed.err.startswith(PendingRollbackError.__name__)


@needs.many_writers
@pytest.mark.parametrize("moment", ["handler", "return", "commit"])
def test_a_session_that_its_server_ends_has_not_failed(
    work: WorkQueue,
    orders: Orders,
    database_name: str,
    caplog: pytest.LogCaptureFixture,
    moment: str,
) -> None:
    engine = create_engine(orders.engine.url)
    kill = killing(database_name, engine.url)

    def handle(job: Job) -> Insert:
        job.connection.execute(orders.add(7))
        if moment == "commit":
            event.listen(engine, "commit", kill, once=True)
        else:
            kill(job.connection)
        if moment == "handler":
            job.connection.execute(orders.add(8))
        return Insert(queue="b")

    work.insert("a")
    Worker(work, handle, "a", engine=engine, max_attempts=1).run(limit=1)
    assert is_left(work, caplog)
    assert orders.numbers() == []
