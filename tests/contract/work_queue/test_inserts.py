"""Inserts that meet what is there, and inserts with a priority."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from queue_core.errors import InvalidRequestError
from queue_core.runtime.manual_clock import ManualClock
from sql.capabilities import Capabilities
from tests import requirements as needs
from tests.contract.harness import BOUND_SECONDS, see_what_changes
from tests.contract.work_queue.claiming import claimed
from tests.contract.work_queue.conftest import MakeWork
from work_queue.faults import DependencyError
from work_queue.modification import Insert
from work_queue.work_queue import WorkQueue


@pytest.mark.served_everywhere
def test_an_insert_whose_id_exists_answers_with_what_is_there(work: WorkQueue) -> None:
    first = work.insert("a", {"n": 2**70}, id="one", skip_existing=True)
    assert work.insert("b", 2, id="one", skip_existing=True) == first
    held = claimed(work)
    assert work.insert("a", 3, id="one", skip_existing=True) == held
    assert work.queues() == {"a": 1}
    with pytest.raises(DependencyError):
        work.insert("a", id="one")


def test_what_exists_is_answered_beside_what_is_new(work: WorkQueue) -> None:
    there = work.modify(*(Insert(queue="a", id=one, value=one) for one in "13")).inserted
    modified = work.modify(
        *(Insert(queue="a", id=one, skip_existing=True) for one in "123"), Insert(queue="b")
    )
    assert [one.id for one in modified.inserted][:1] == ["2"]
    assert len(modified.inserted) == 2
    assert modified.existing == there
    assert work.queues() == {"a": 3, "b": 1}


def test_an_insert_that_is_repeated_after_the_end_of_its_task_is_a_new_one(
    work: WorkQueue,
) -> None:
    task = work.insert("a", 1, id="one", skip_existing=True)
    work.modify(task.delete())
    assert work.insert("a", 2, id="one", skip_existing=True).value == 2


@pytest.mark.database_only
def test_an_insert_answers_with_what_another_transaction_inserts_meanwhile(
    make_work: MakeWork, engine: Engine, capabilities: Capabilities
) -> None:
    work = make_work()
    with ThreadPoolExecutor(1) as pool, engine.connect() as connection:
        first = work.insert("a", 1, id="one", connection=connection)
        if capabilities.one_writer:  # the other would wait for the lock first
            connection.commit()
        other = pool.submit(work.insert, "b", 2, id="one", skip_existing=True)
        connection.commit()
        assert other.result(BOUND_SECONDS) == first


@pytest.mark.database_only
@needs.many_writers
def test_it_does_so_in_a_transaction_whose_snapshot_is_older(
    make_work: MakeWork, engine: Engine
) -> None:
    work = make_work()
    with engine.connect() as connection:
        see_what_changes(connection)
        assert work.tasks("a", connection=connection) == []
        first = work.insert("a", 1, id="one")
        assert work.insert("b", 2, id="one", skip_existing=True, connection=connection) == first


def test_a_priority_is_a_head_start(work: WorkQueue, clock: ManualClock) -> None:
    old = work.insert("a", "old")
    clock.advance(seconds=601)
    for value in ("normal", "high", "urgent"):
        work.insert("a", value, priority=value)
    assert work.tasks("a")[0].at == clock.now() - timedelta(hours=1)
    order = [one.value for one in work.claim_many("a", limit=9)]
    assert order == ["urgent", "old", "high", "normal"]
    assert old.at < clock.now()
    assert work.queue_stats()[0].claimed == 4


def test_an_urgent_task_that_waits_comes_before_those_of_a_backlog(work: WorkQueue) -> None:
    work.modify(*(Insert(queue="a", value=number) for number in range(20)))
    work.modify(Insert(queue="a", value="now", priority="urgent"))
    assert claimed(work).value == "now"


@pytest.mark.parametrize(
    "options",
    [
        {"priority": "highest"},
        {"priority": ["high"]},
        {"priority": None},
        {"priority": "high", "delay": 5},
        {"priority": "urgent", "delay": 0},
    ],
)
def test_a_priority_that_means_nothing_is_refused(work: WorkQueue, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="priority"):
        work.insert("a", **options)
    assert work.queues() == {}
