"""The history of tasks that were deleted, of queues that keep it."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from itertools import count, islice
from typing import Any

import pytest
from sqlalchemy import Engine, event

from queue_core.errors import ConfigurationError, InvalidRequestError, NaiveDateTimeError
from queue_core.runtime.manual_clock import ManualClock
from tests.contract.conftest import Orders
from tests.contract.work_queue.backends import backend_of
from tests.contract.work_queue.claiming import claimed
from tests.contract.work_queue.conftest import MakeWork
from work_queue.face import history
from work_queue.faults import DependencyError
from work_queue.modification import Insert
from work_queue.storage.database_backend import DatabaseBackend
from work_queue.values import UNREAD
from work_queue.work_queue import WorkQueue


@pytest.fixture
def work(make_work: MakeWork) -> WorkQueue:
    return make_work(claimant="me")


@pytest.mark.served_everywhere
def test_a_deleted_task_of_a_queue_that_keeps_history_is_found_there(work: WorkQueue) -> None:
    work.keep_history("a")
    work.insert("a", {"n": 2**70}, id="one", err="late", attempt=2)
    task = claimed(work)
    work.modify(task.delete())
    [ended] = work.finished_tasks("a")
    assert (ended.id, ended.version, ended.queue) == ("one", 1, "a")
    assert (ended.value, ended.attempt, ended.err) == ({"n": 2**70}, 2, "late")
    assert (ended.claims, ended.finished_by) == (1, "me")
    assert ended.created == task.created <= ended.modified == task.modified <= ended.finished
    assert work.tasks("a") == []
    assert work.queues() == {}


def test_who_holds_nothing_may_have_a_longer_name_than_history_keeps(work: WorkQueue) -> None:
    work.keep_history("a")
    for number in range(2):
        alone, other = work.insert("a", number), work.insert("b", number)
        work.modify(alone.delete(), *[other.delete()] * number, claimant="ü" * 40)
    assert {one.finished_by for one in work.finished_tasks("a")} == {"ü" * 32}


def test_a_queue_keeps_none_unless_it_is_told_to(work: WorkQueue) -> None:
    work.keep_history("a")
    task = work.insert("b")
    work.modify(task.delete())
    assert work.finished_tasks("b") == work.finished_tasks(ids=[task.id]) == []


def test_the_setting_changes_while_work_goes_on(work: WorkQueue) -> None:
    first, second, third = (work.insert("a", number) for number in range(3))
    work.modify(first.delete())
    work.keep_history("a")
    since = work.histories()["a"]
    work.keep_history("a")
    assert work.histories() == {"a": since}
    work.modify(second.delete())
    work.keep_history("a", keep=False)
    assert work.histories() == {"a": None}
    work.modify(third.delete())
    assert [one.id for one in work.finished_tasks("a")] == [second.id]
    work.keep_history("a")
    assert work.histories()["a"] is not None


def test_a_moved_task_goes_into_the_history_of_its_last_queue(work: WorkQueue) -> None:
    work.keep_history("b")
    [moved] = work.modify(work.insert("a").change(queue="b")).changed
    work.modify(moved.delete())
    assert [one.queue for one in work.finished_tasks("b")] == ["b"]


def test_a_refused_modification_leaves_no_history(work: WorkQueue) -> None:
    work.keep_history("a")
    task = work.insert("a")
    work.insert("a", id="taken")
    with pytest.raises(DependencyError):
        work.modify(task.delete(), Insert(queue="a", id="taken"))
    assert work.finished_tasks("a") == []


def test_many_tasks_end_at_once(work: WorkQueue) -> None:
    work.keep_history("a")
    tasks = work.modify(*(Insert(queue="ab"[n % 2], value=n) for n in range(20))).inserted
    work.modify(*(task.delete() for task in tasks))
    assert {one.value for one in work.finished_tasks("a")} == set(range(0, 20, 2))
    assert work.finished_tasks("b") == []


def test_an_id_that_ends_twice_is_there_twice(work: WorkQueue) -> None:
    work.keep_history("a")
    for number in (1, 2):
        work.modify(work.insert("a", number, id="one").delete())
    assert [one.value for one in work.finished_tasks(ids=["one"])] == [2, 1]


def test_history_is_read_by_time_and_number(work: WorkQueue) -> None:
    work.keep_history("a")
    for number in range(4):
        work.modify(work.insert("a", number).delete())
    ended = work.finished_tasks("a")
    assert [one.value for one in ended] == [3, 2, 1, 0]
    assert work.finished_tasks("a", limit=2) == ended[:2]
    later = [one for one in ended if one.finished >= ended[1].finished]
    assert work.finished_tasks("a", since=ended[1].finished) == later
    assert work.finished_tasks("a", before=ended[1].finished) == ended[len(later) :]
    assert work.finished_tasks(ids=[ended[2].id, "no"]) == [ended[2]]
    assert work.finished_tasks("b", ids=[ended[2].id]) == []
    assert [one.value for one in work.finished_tasks("a", limit=1, with_values=False)] == [UNREAD]


def test_history_is_truncated_by_queue_time_and_number(work: WorkQueue) -> None:
    for queue in ("a", "b"):
        work.keep_history(queue)
        for number in range(5):
            work.modify(work.insert(queue, number).delete())
    work.keep_history("b", keep=False)
    oldest = work.finished_tasks("a")[-1].finished
    assert work.truncate_history(before=oldest - timedelta(hours=1)) == 0
    assert work.truncate_history("a", limit=2) == 2
    assert [one.value for one in work.finished_tasks("a")] == [4, 3, 2]
    told = list[int]()
    assert work.truncate_history(progress=told.append) == 8
    assert told == [3, 8]
    assert work.finished_tasks("a") == work.finished_tasks("b") == []


def test_a_busy_history_is_truncated_to_its_end_though_the_date_is_yet_to_come(
    make_work: MakeWork, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "DELETED", 2)
    work, numbers = make_work(clock=clock, claimant="me"), count(1)
    work.keep_history("a")

    def end_two() -> None:
        clock.advance(seconds=5)
        for number in islice(numbers, 2):
            work.modify(work.insert("a", number).delete())

    end_two()
    end_two()
    tomorrow = clock.now() + timedelta(days=1)

    def end_two_of_twenty(removed: int) -> None:
        if removed <= 20:
            end_two()

    assert work.truncate_history("a", before=tomorrow, progress=end_two_of_twenty) == 4
    assert sorted(str(one.value) for one in work.finished_tasks("a")) == ["5", "6", "7", "8"]


@pytest.mark.database_only
@pytest.mark.parametrize("commits", [True, False])
def test_history_ends_with_the_callers_transaction(
    work: WorkQueue,
    orders: Orders,
    *,
    commits: bool,
) -> None:
    task = work.insert("a")
    with orders.engine.connect() as connection:
        work.keep_history("a", connection=connection)
        work.modify(task.delete(), connection=connection)
        assert len(work.finished_tasks("a", connection=connection)) == 1
        if commits:
            connection.commit()
    assert len(work.finished_tasks("a")) == len(work.histories()) == commits
    assert len(work.tasks("a")) == 1 - commits


@pytest.mark.database_only
def test_a_delete_takes_a_statement_more_where_history_is_kept_and_none_elsewhere(
    work: WorkQueue,
) -> None:
    backend = backend_of(work)
    assert isinstance(backend, DatabaseBackend)
    engine: Engine = backend.database.engine
    sent = list[str]()

    def catch(_c: object, _cursor: object, statement: str, *_others: object) -> None:
        sent.append(statement)

    def statements() -> int:
        tasks = [work.insert("a"), work.insert("a")]
        sent.clear()
        event.listen(engine, "before_cursor_execute", catch)
        try:
            work.modify(*(task.delete() for task in tasks))
        finally:
            event.remove(engine, "before_cursor_execute", catch)
        return len(sent)

    statements()
    without = statements()
    assert not [one for one in sent if "work_task_history" in one]
    work.keep_history("a")
    assert statements() == without + 1
    work.keep_history("a", keep=False)
    assert statements() == without


def test_impossible_arguments_are_refused(work: WorkQueue) -> None:
    calls: list[tuple[type[Exception], Any]] = [
        (InvalidRequestError, lambda: work.keep_history("")),
        (InvalidRequestError, work.finished_tasks),
        (InvalidRequestError, lambda: work.finished_tasks(ids=[str(n) for n in range(501)])),
        (NaiveDateTimeError, lambda: work.finished_tasks("a", since=_naive())),
        (InvalidRequestError, lambda: work.truncate_history("")),
        (InvalidRequestError, lambda: work.truncate_history(before="now")),  # type: ignore[arg-type]
        (ConfigurationError, lambda: work.truncate_history(progress=1)),  # type: ignore[arg-type]
    ]
    for kind, call in calls:
        with pytest.raises(kind):
            call()


def _naive() -> Any:
    return datetime(2026, 1, 1)  # noqa: DTZ001 -- that is the point


def test_the_twins_of_calls_on_history_are_awaited(work: WorkQueue) -> None:
    async def run() -> None:
        await work.keep_history_async("a")
        assert list(await work.histories_async()) == ["a"]
        await work.modify_async((await work.insert_async("a")).delete())
        assert len(await work.finished_tasks_async("a")) == 1
        assert await work.truncate_history_async("a") == 1

    asyncio.run(run())
