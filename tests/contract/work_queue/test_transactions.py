"""Modifications in callers' transactions, and many at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import URL, Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from sql.capabilities import Capabilities
from tests import requirements as needs
from tests.contract.conftest import Orders
from tests.contract.harness import BOUND_SECONDS
from tests.contract.transactions.awaited import Given, each_kind, run_on
from tests.contract.work_queue.claiming import claimed
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.docs import held, new
from work_queue.document import DocClaim
from work_queue.faults import DependencyError, FaultKind
from work_queue.modification import Insert, InsertDoc
from work_queue.work_queue import WorkQueue

LONG_SECONDS = 900.0
MANY = [pytest.mark.slow, pytest.mark.database_only]
"""As many writers as a scenario names, which is tried with fewer, too."""
FULL = [*MANY, pytest.mark.full_size]
"""With all the steps that it names."""


@pytest.fixture
def work(make_work: MakeWork) -> WorkQueue:
    return make_work(claimant="me")


@pytest.mark.database_only
@pytest.mark.parametrize("commits", [True, False])
def test_scenario_85_a_modification_ends_with_the_callers_transaction(
    work: WorkQueue,
    orders: Orders,
    *,
    commits: bool,
) -> None:
    task = work.insert("a")
    with Session(orders.engine) as session:
        session.execute(orders.add(1))
        work.modify(task.delete(), new(), Insert(queue="b"), connection=session)
        assert [one.queue for one in work.tasks("b", connection=session)] == ["b"]
        assert len(work.docs("n", connection=session)) == 1
        if commits:
            session.commit()
    assert orders.numbers() == ([1] if commits else [])
    assert work.queues() == ({"b": 1} if commits else {"a": 1})
    assert len(work.docs("n")) == commits


@pytest.mark.database_only
def test_scenario_85_a_refused_modification_leaves_the_callers_transaction_whole(
    work: WorkQueue, orders: Orders
) -> None:
    task = work.insert("a")
    [doc] = work.modify(new()).inserted_docs
    work.modify(task.change())
    with orders.engine.begin() as connection:
        connection.execute(orders.add(1))
        with pytest.raises(DependencyError) as refused:
            work.modify(
                task.delete(),
                Insert(queue="b"),
                doc.change(1),
                new(key="other"),
                new(key="k"),
                connection=connection,
            )
        connection.execute(orders.add(2))
    assert [fault.kind for fault in refused.value.faults] == [FaultKind.DELETE, FaultKind.INSERT]
    assert orders.numbers() == [1, 2]
    assert work.queues() == {"a": 1}
    assert [one.content for one in work.docs("n")] == [None]
    assert held(work, "other").version == 1


@pytest.mark.database_only
def test_a_raw_connection_takes_a_modification(work: WorkQueue, engine: Engine) -> None:
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        work.insert("a", connection=driver)
        driver.rollback()
        work.insert("b", connection=driver)
        driver.commit()
    assert work.queues() == {"b": 1}


@needs.two_phase
@pytest.mark.database_only
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_two_phase_transaction_takes_a_modification(
    work: WorkQueue, engine: Engine, end: str
) -> None:
    task = work.insert("a")
    with engine.connect() as connection:
        transaction = connection.begin_twophase()
        work.modify(task.delete(), Insert(queue="b"), connection=connection)
        transaction.prepare()
        getattr(transaction, end)()
    assert work.queues() == ({"b": 1} if end == "commit" else {"a": 1})


@needs.schemas
@pytest.mark.database_only
def test_another_search_path_leads_to_no_other_tasks(work: WorkQueue, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL search_path = pg_catalog"))
        task = work.insert("a", connection=connection)
        assert work.tasks("a", connection=connection) == [task]
    assert work.queues() == {"a": 1}


@pytest.mark.database_only
def test_scenario_06_an_id_that_another_transaction_takes_meanwhile_is_at_fault(
    work: WorkQueue, engine: Engine, capabilities: Capabilities
) -> None:
    with ThreadPoolExecutor(1) as pool, engine.connect() as connection:
        work.insert("a", id="one", connection=connection)
        if capabilities.one_writer:  # the other would wait for the lock first
            connection.commit()
        other = pool.submit(work.insert, "b", id="one")
        connection.commit()
        with pytest.raises(DependencyError) as refused:
            other.result(BOUND_SECONDS)
    assert [fault.kind for fault in refused.value.faults] == [FaultKind.INSERT]
    assert work.queues() == {"a": 1}


def many(count: int, run: Any, *, seconds: float = 4 * BOUND_SECONDS) -> None:
    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(run, number) for number in range(count)]:
            future.result(seconds)


def test_scenario_70_many_insert_into_one_set_at_once(work: WorkQueue) -> None:
    won, kinds = list[int](), set[FaultKind]()

    def insert(number: int) -> None:
        work.modify(new(secondary=str(number)), claimant=f"w{number}")
        try:
            work.modify(new(key="one", id="one"), claimant=f"w{number}")
            won.append(number)
        except DependencyError as error:
            kinds.update(fault.kind for fault in error.faults)

    many(8, insert)
    assert len(won) == 1
    assert kinds == {FaultKind.INSERT}
    assert len(work.docs("n", key="k")) == 8
    assert work.docs("n", key="k")[0].version == 7


@pytest.mark.timeout(2 * LONG_SECONDS)
@pytest.mark.parametrize(
    ("writers", "steps", "docs"),
    [(5, 10, 5), pytest.param(20, 5, 10, marks=MANY), pytest.param(20, 50, 10, marks=FULL)],
)
def test_scenario_81_optimistic_increments_add_up(
    work: WorkQueue, writers: int, steps: int, docs: int
) -> None:
    work.modify(*(new(secondary=str(number), content=0) for number in range(docs)))

    def count(writer: int) -> None:
        for step in range(steps):
            while True:
                doc = work.docs("n")[(writer + step) % docs]
                try:
                    work.modify(doc.change(doc.content + 1), claimant=f"w{writer}")
                    break
                except DependencyError:
                    pass

    many(writers, count, seconds=LONG_SECONDS)
    assert sum(doc.content for doc in work.docs("n")) == writers * steps


@pytest.mark.timeout(2 * LONG_SECONDS)
@pytest.mark.parametrize(
    ("workers", "claims"),
    [(5, 10), pytest.param(10, 6, marks=MANY), pytest.param(10, 30, marks=FULL)],
)
def test_scenario_82_tasks_and_docs_change_together_under_load(
    work: WorkQueue, workers: int, claims: int
) -> None:
    work.modify(*(Insert(queue="a", value=0) for _ in range(3)))
    work.modify(*(new(secondary=str(number), content=0) for number in range(3)))

    def count(writer: int) -> None:
        left, name = claims, f"w{writer}"
        while left:
            task = work.claim("a", claimant=name, timeout_seconds=LONG_SECONDS)
            doc = work.docs("n")[left % 3]
            try:
                work.modify(
                    task.change(value=task.value + 1), doc.change(doc.content + 1), claimant=name
                )
                left -= 1
            except DependencyError:
                work.modify(task.release(), claimant=name)

    many(workers, count, seconds=LONG_SECONDS)
    assert sum(task.value for task in work.tasks("a")) == workers * claims
    assert sum(doc.content for doc in work.docs("n")) == workers * claims


def test_scenario_84_crossed_renewals_end_in_no_deadlock(work: WorkQueue) -> None:
    work.modify(*(Insert(queue="a", id=f"t{number}") for number in range(6)))
    work.modify(*(InsertDoc(namespace="n", key=f"k{number}") for number in range(6)))
    lock = threading.Lock()

    def renew(number: int) -> None:
        for turn in range(3):
            tasks = work.tasks("a")
            docs = work.docs("n")
            if (number + turn) % 2:
                tasks.reverse()
                docs.reverse()
            changes = [doc.change(number) for doc in docs]
            with suppress(DependencyError):
                work.modify(*(task.renew(0) for task in tasks), *changes)
            with lock:
                done[number] += 1

    done = [0] * 20
    many(20, renew)
    assert done == [3] * 20


@pytest.mark.database_only
def test_scenario_85_each_task_is_counted_once(work: WorkQueue, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE counter (done INTEGER)"))
        connection.execute(text("INSERT INTO counter VALUES (0)"))
    work.modify(*(Insert(queue="a") for _ in range(50)))

    def consume(number: int) -> None:
        name = f"w{number}"
        while task := work.try_claim("a", claimant=name):
            with engine.begin() as connection:
                connection.execute(text("UPDATE counter SET done = done + 1"))
                work.modify(task.delete(), claimant=name, connection=connection)

    many(10, consume)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT done FROM counter")).scalar_one() == 50
    assert work.queues() == {}


@needs.many_writers
def test_a_claim_skips_what_an_open_transaction_has_locked(work: WorkQueue, engine: Engine) -> None:
    first, second = work.insert("a", 1), work.insert("a", 2)
    with engine.begin() as connection:
        work.modify(first.depend(), connection=connection)
        assert claimed(work).id == second.id
        assert work.try_claim("a") is None
    assert claimed(work).id == first.id


def test_scenario_89_nothing_is_lost_when_the_work_queue_is_opened_again(
    make_work: MakeWork,
) -> None:
    first = make_work(claimant="me")
    first.modify(Insert(queue="a"), Insert(queue="a", delay=500), new())
    task = claimed(first)
    first.claim_docs(DocClaim("n", "k"))
    before = first.tasks("a"), first.docs("n"), first.queue_stats(), first.namespace_stats()
    first.close()
    again = make_work(claimant="me")
    assert (again.tasks("a"), again.docs("n")) == before[:2]
    assert (again.queue_stats(), again.namespace_stats()) == before[2:]
    again.modify(task.delete())


def test_the_twins_of_calls_on_tasks_and_docs_are_awaited(work: WorkQueue) -> None:
    async def run() -> None:
        task = await work.insert_async("a")
        assert (await work.claim_async("a")).id == task.id
        assert await work.try_claim_async("a") is None
        assert await work.claim_many_async("a", limit=2, timeout_seconds=0) == []
        await work.claim_docs_async(DocClaim("n", "k"))
        assert len(await work.tasks_async("a")) == 1
        assert await work.docs_async("n") == []
        assert await work.queues_async() == {"a": 1}
        assert len(await work.queue_stats_async()) == 1
        assert await work.namespace_stats_async() == []
        assert (await work.time_async()).tzinfo is not None
        await work.close_async()

    asyncio.run(run())


@pytest.mark.database_only
@each_kind
def test_an_asynchronous_transaction_takes_a_modification(
    work: WorkQueue, database_url: URL, open_one: Callable[[AsyncEngine], Given]
) -> None:
    async def modify(given: Given) -> None:
        task = await work.insert_async("a", connection=given)
        assert await work.tasks_async("a", connection=given) == [task]
        await given.rollback()
        await work.modify_async(Insert(queue="b"), new(), connection=given)
        assert len(await work.docs_async("n", connection=given)) == 1
        await given.commit()

    run_on(database_url, open_one, modify)
    assert work.queues() == {"b": 1}
