"""Recurring schedules of queues: each date has one task, whoever claims, dies and comes late."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import URL, Connection, Engine, func, select, update

from queue_core.runtime.manual_clock import ManualClock
from sql.statements.work.claims import Coming
from sql.statements.work.tasks import WorkTasks
from sql.tables import work_queue_counts, work_schedules
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.work_queue.backends import backend_of, waiting
from tests.contract.work_queue.claiming import claimed
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.finished import finish
from tests.contract.work_queue.limited import HOUR, waiting_claim
from work_queue.storage.folding import ROWS
from work_queue.task import Task
from work_queue.work_queue import WorkQueue


@pytest.mark.served_everywhere
def test_a_claim_gets_a_task_for_each_date(work: WorkQueue, clock: ManualClock) -> None:
    made = work.recur("a", "beat", {"n": 2**70}, every=60)
    assert work.try_claim("a") is None
    clock.advance(seconds=59)
    assert work.try_claim("a") is None
    clock.advance(seconds=1)
    task = claimed(work)
    assert (task.value, task.claims, task.created) == ({"n": 2**70}, 1, made.next_due)
    work.modify(task.delete())
    assert work.try_claim("a") is None
    clock.advance(seconds=60)
    assert claimed(work).id != task.id
    assert work.queues() == {"a": 1}


def test_a_task_arrives_at_its_date(work: WorkQueue, clock: ManualClock) -> None:
    made = work.recur("a", "beat", every=60)
    clock.advance(seconds=90)
    before = work.insert("a", "later")
    assert work.try_claim("other", "a") is not None
    [told] = work.recurring()
    assert told.last_due == made.next_due
    assert [task.id for task in work.tasks("a")] != [before.id]
    assert claimed(work).id == before.id


def test_a_value_may_be_bytes_or_none(work: WorkQueue, clock: ManualClock) -> None:
    for name, value in (("1", b"\0\xff"), ("2", None), ("3", "text")):
        work.recur("a", name, value, every=60)
    clock.advance(seconds=60)
    assert sorted(map(repr, finish(work))) == ["'text'", "None", r"b'\x00\xff'"]


@pytest.mark.served_everywhere
def test_a_queue_that_is_never_empty_gets_its_task_in_time(
    work: WorkQueue, clock: ManualClock
) -> None:
    work.recur("a", "beat", "beat", every=60)
    for _ in range(3):
        work.insert("a", "work")
    work.modify(claimed(work).delete())
    clock.advance(seconds=61)
    for _ in range(3):
        work.insert("a", "newer")
    # Tasks are claimed by arrival: what has waited since before the date comes first.
    assert finish(work) == ["work", "work", "beat", "newer", "newer", "newer"]


def test_a_claim_of_several_queues_inserts_what_is_due_in_each(
    work: WorkQueue, clock: ManualClock
) -> None:
    work.recur("a", "beat", every=60)
    work.recur("b", "beat", every=60)
    for _ in range(20):
        work.insert("c")
    clock.advance(seconds=60)
    assert work.try_claim("a", "b", "c") is not None
    assert work.queues() == {"a": 1, "b": 1, "c": 20}
    assert len(work.claim_many("a", "b", "c", limit=30, timeout_seconds=0)) > 0


def test_a_limited_queue_gets_its_tasks_too(work: WorkQueue, clock: ManualClock) -> None:
    work.recur("a", "beat", every=60)
    work.limit("a", concurrency=1)
    work.insert("a")
    held = claimed(work)
    clock.advance(seconds=60)
    work.modify(held.delete())
    claimed(work)
    work.insert("a")
    assert work.try_claim("a") is None


@pytest.mark.database_only
def test_tasks_of_schedules_are_counted_in_few_rows(
    work: WorkQueue, clock: ManualClock, engine: Engine
) -> None:
    work.recur("a", "beat", every=60)
    for _ in range(ROWS + 1):
        clock.advance(seconds=60)
        claimed(work, lease_seconds=100 * HOUR)
    with engine.connect() as connection:
        rows = connection.scalar(select(func.count()).select_from(work_queue_counts))
    assert rows is not None
    assert rows < ROWS
    assert work.queues() == {"a": ROWS + 1}


@pytest.mark.database_only
def test_claims_that_race_insert_one_task_for_each_date(
    make_work: MakeWork, clock: ManualClock
) -> None:
    works = [make_work(clock=clock) for _ in range(2)]
    works[0].recur("a", "beat", every=60)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            clock.advance(seconds=60)
            claims = [
                pool.submit(works[number % 2].try_claim, "a", lease_seconds=HOUR)
                for number in range(8)
            ]
            taken = [claim.result(BOUND_SECONDS) for claim in claims]
            assert sum(task is not None for task in taken) == 1
    assert works[1].queues() == {"a": 5}


@pytest.mark.slow
def test_two_that_wait_get_one_task_of_one_date(make_work: MakeWork) -> None:
    works = [make_work(poll_seconds=HOUR) for _ in range(2)]
    works[0].recur("a", "beat", every=1)
    with ThreadPoolExecutor(2) as pool:
        claims = [pool.submit(work.claim, "a", timeout_seconds=BOUND_SECONDS) for work in works]
        ids = {claim.result(2 * BOUND_SECONDS).id for claim in claims}
    assert len(ids) == 2  # of two dates
    [told] = works[0].recurring()
    assert told.last_task_id in ids


@pytest.mark.database_only
def test_a_claim_takes_a_task_though_another_has_inserted_what_was_due(
    make_work: MakeWork, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = make_work(clock=clock), make_work(clock=clock)
    slow.recur("a", "beat", every=60)
    slow.insert("a", "waits")
    clock.advance(seconds=60)
    coming, taken = WorkTasks.coming, list[Task | None]()

    def late(statements: WorkTasks, connection: Connection, queues: Sequence[str]) -> list[Coming]:
        if not taken:
            taken.append(None)  # first: the other one reads, too
            taken[0] = fast.try_claim("a")
        return coming(statements, connection, queues)

    monkeypatch.setattr(WorkTasks, "coming", late)
    assert slow.try_claim("a") is not None
    assert taken != [None]


@pytest.mark.database_only
def test_a_claim_that_fails_within_leaves_the_date_to_the_next(
    work: WorkQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise RuntimeError("within")

    work.recur("a", "beat", every=60)
    clock.advance(seconds=60)
    schedules = backend_of(work).statements.schedules
    with monkeypatch.context() as patch:
        patch.setattr(schedules, "change", fail)
        with pytest.raises(RuntimeError):
            work.try_claim("a")
    assert work.queues() == {}
    claimed(work)
    assert work.try_claim("a") is None


KILLED = """
import os, sys
from sql.statements.work.schedules import WorkSchedules
from stickybus import WorkQueue

change = WorkSchedules.change
def die(*arguments, **options):
    change(*arguments, **options)
    os._exit(9)
WorkSchedules.change = die
WorkQueue(sys.argv[1]).claim("a")
"""


@pytest.mark.slow
@pytest.mark.database_only
def test_a_process_that_dies_within_leaves_the_date_to_the_next(
    make_work: MakeWork, database_url: URL
) -> None:
    work = make_work()
    made = work.recur("a", "beat", every=0.05)
    url = database_url.render_as_string(hide_password=False)
    process = subprocess.run([sys.executable, "-c", KILLED, url], check=False)
    assert process.returncode == 9
    assert work.queues() == {}
    assert work.recurring() == [made]
    work.claim("a", timeout_seconds=BOUND_SECONDS)
    assert work.recurring() != [made]


@pytest.fixture
def waits(make_work: MakeWork) -> WorkQueue:
    """A work queue by the true time whose claims look at nothing unless they are told."""
    return make_work(claimant="me", poll_seconds=HOUR)


@pytest.mark.served_everywhere
def test_the_next_date_wakes_a_claim_that_waits(waits: WorkQueue) -> None:
    waits.recur("a", "beat", "beat", every=0.5)
    assert waits.claim("a", timeout_seconds=BOUND_SECONDS).value == "beat"
    assert waits.claim("b", "a", timeout_seconds=BOUND_SECONDS).value == "beat"


def test_a_claim_that_waits_learns_of_a_schedule(waits: WorkQueue) -> None:
    with waiting_claim(waits) as claim:
        waits.recur("a", "beat", "beat", every=0.2)
        assert claim.result(BOUND_SECONDS).value == "beat"


def test_several_tasks_that_were_due_wake_several_that_wait(waits: WorkQueue) -> None:
    with ThreadPoolExecutor(3) as pool:
        claims = [pool.submit(waits.claim, "a", timeout_seconds=BOUND_SECONDS) for _ in range(3)]
        eventually(lambda: waiting(waits) == 3)
        for name in "123":
            waits.recur("a", name, every=timedelta(hours=1))
        with backend_of(waits).database.engine.begin() as connection:
            now = datetime.now(UTC) + timedelta(seconds=1)
            connection.execute(update(work_schedules).values(next_due=now, rule=_since(now)))
        waits.recur("a", "wakes", every=timedelta(hours=1))
        assert len({claim.result(BOUND_SECONDS).id for claim in claims}) == 3


def _since(date: datetime) -> str:
    return (
        '{"kind":"interval","expression":"3600","timezone":"UTC","missed":"FIRE_ONCE",'
        f'"start":"{(date - timedelta(hours=1)).isoformat()}"}}'
    )


def test_the_awaitable_twins_do_the_same(work: WorkQueue, clock: ManualClock) -> None:
    async def run() -> None:
        made = await work.recur_async("a", "beat", 7, every=60)
        assert await work.recurring_async() == [made]
        clock.advance(seconds=60)
        task = await work.claim_async("a", timeout_seconds=BOUND_SECONDS)
        assert task.value == 7
        assert await work.stop_recurring_async("a", "beat")

    asyncio.run(run())
