"""What claims and deletes cost, in statements. Plans have a test, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

import pytest
from sqlalchemy import Connection, event

from queue_core.runtime.manual_clock import ManualClock
from tests.contract.refused_rows import refusing
from tests.contract.work_queue.backends import backend_of
from tests.contract.work_queue.limited import HOUR
from tests.contract.work_queue.refused import REFUSED
from work_queue.faults import DependencyError
from work_queue.modification import Delete, Insert
from work_queue.refs import TaskRef
from work_queue.work_queue import WorkQueue

pytestmark = pytest.mark.database_only
OTHERS = 50
"""Other queues that have a limit, and a schedule that is due."""
NOTHING, WHY, HELD, DUE, LIMITED = 1, 1, 2, 5, 2
"""Statements that a claim pays to get nothing, and to learn why; then to learn what is due and
limited; to insert what is due; and to see what a limit leaves."""
DELETE, REFUSAL = 3, 1
"""Statements of a lone delete in a transaction, and of one that is refused."""


@contextmanager
def caught(work: WorkQueue) -> Iterator[list[str]]:
    """The statements that a block sends; not what the looks of other threads send meanwhile."""
    engines, sent, here = backend_of(work).database.engines, list[str](), get_ident()

    def catch(_c: Connection, _cursor: object, statement: str, *_others: object) -> None:
        if get_ident() == here:
            sent.append(statement)

    for engine in engines:
        event.listen(engine, "before_cursor_execute", catch)
    try:
        yield sent
    finally:
        for engine in engines:
            event.remove(engine, "before_cursor_execute", catch)


def cost(work: WorkQueue, *queues: str, tasks: int = 1) -> int:
    """The statements of a claim, which gets a task if there are `tasks`."""
    for _ in range(tasks):
        work.insert(queues[0])
    with caught(work) as sent:
        task = work.try_claim(*queues)
    assert (task is not None) == bool(tasks)
    return len(sent)


@pytest.fixture
def paid(work: WorkQueue) -> int:
    """What a claim costs in a database where nothing is limited, and nothing recurs."""
    cost(work, "a")  # what is asked but once
    paid = cost(work, "a")
    assert paid in {1, 2}  # the latter where a claim can't return what it takes
    return paid


def test_limits_and_schedules_of_other_queues_cost_nothing(
    work: WorkQueue, clock: ManualClock, paid: int
) -> None:
    empty = cost(work, "b", tasks=0)
    for number in range(OTHERS):
        work.limit(f"l{number}", concurrency=1)
        work.recur(f"s{number}", "beat", every=60)
    clock.advance(seconds=60)
    assert cost(work, "a") == paid
    assert cost(work, "b", tasks=0) == empty == NOTHING + WHY


def test_claims_of_any_number_of_queues_have_few_statements(work: WorkQueue) -> None:
    queues, backend = [f"q{number}" for number in range(40)], backend_of(work)
    work.modify(*(Insert(queue=queue) for queue in queues[::2]))
    with backend.database.engine.connect() as connection, caught(work) as sent:
        for count in range(1, len(queues) + 1):
            asked = queues[:count]
            coming = backend.statements.tasks.coming(connection, asked)
            assert Counter(one.queue for one in coming) == Counter(asked)
            assert {one.queue for one in coming if one.arrival} == {*asked[::2]}
    assert len(set(sent)) == len({1, 2, 4, 8, 16, 32, 64})


def test_a_schedule_that_is_not_due_costs_nothing(work: WorkQueue, paid: int) -> None:
    for number in range(OTHERS):
        work.recur("a", f"{number}", every=60)
    assert cost(work, "a") == paid


def test_a_schedule_costs_the_same_whenever_it_is_due(
    work: WorkQueue, clock: ManualClock, paid: int
) -> None:
    work.recur("a", "beat", every=60)
    for _ in range(2):
        clock.advance(seconds=60)
        assert cost(work, "a") == NOTHING + WHY + HELD + DUE + paid
        assert cost(work, "a") == paid


def test_a_schedule_that_is_held_inserts_nothing_at_each_claim(
    work: WorkQueue, clock: ManualClock, paid: int
) -> None:
    work.recur("a", "beat", "refused", every=60)
    clock.advance(seconds=60)
    with refusing(backend_of(work).database.engine, *REFUSED):
        cost(work, "a")
        assert cost(work, "a") == NOTHING + WHY + HELD + paid


def test_a_limited_queue_costs_the_same_with_any_number_of_tasks(
    work: WorkQueue, paid: int
) -> None:
    work.limit("a", concurrency=1_000)
    cost(work, "a")  # learns that it is limited
    few = cost(work, "a")
    assert few == paid + LIMITED
    work.modify(*(Insert(queue="a") for _ in range(100)))
    work.claim_many("a", limit=50, lease_seconds=HOUR)
    assert cost(work, "a") == few


@pytest.mark.parametrize("keeps", [False, True])
def test_a_lone_delete_is_one_statement_where_a_database_can(
    work: WorkQueue,
    *,
    keeps: bool,
) -> None:
    work.keep_history("a", keep=keeps)
    work.insert("a", {"n": 1})
    task = work.claim("a")
    at_once = backend_of(work).statements.tasks.ends_at_once()

    with caught(work) as sent:
        work.modify(task.delete())

    assert len(sent) == (1 if at_once else DELETE + keeps)
    assert work.queues() == {}
    assert [one.value for one in work.finished_tasks("a")] == [{"n": 1}] * keeps
    with caught(work) as sent, pytest.raises(DependencyError):
        work.modify(task.delete())
    assert len(sent) == at_once + REFUSAL


def test_a_task_that_nobody_has_claimed_is_counted_when_it_is_deleted_before_its_date(
    work: WorkQueue,
) -> None:
    tasks = [work.insert("a", delay=3600) for _ in range(2)]
    work.modify(tasks[0].delete())
    [stats] = work.queue_stats()
    assert (stats.tasks, stats.future) == (1, 1)
    work.modify(Delete(TaskRef(tasks[1].id, 0)))
    assert work.queues() == {}
