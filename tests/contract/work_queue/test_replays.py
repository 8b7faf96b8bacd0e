"""Failed tasks go back to the queues where they failed."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from typing import Any

import pytest

from queue_core.errors import ConfigurationError, InvalidRequestError
from queue_core.runtime.manual_clock import ManualClock
from tests.contract.conftest import Orders
from tests.contract.work_queue.claiming import claimed
from tests.contract.work_queue.conftest import MakeWork
from work_queue.faults import DependencyError, FaultKind
from work_queue.modification import Insert, Replay
from work_queue.task import Task
from work_queue.values import UNREAD
from work_queue.work_queue import WorkQueue
from work_queue.workers.job import Job
from work_queue.workers.worker import Worker


def failed(work: WorkQueue, queue: str = "a", err: str = "it broke", **options: Any) -> Task:
    """A task that a failure has moved to the error queue."""
    task = work.insert(queue, **options)
    return moved(work, task, queue="a/err", err=err, attempt=task.attempt + 1)


def moved(work: WorkQueue, task: Task, **changes: Any) -> Task:
    return work.modify(task.change(**changes)).changed[0]


@pytest.mark.served_everywhere
def test_failed_tasks_are_read_page_by_page(work: WorkQueue) -> None:
    ids = [failed(work).id for _ in range(3)]
    [first, second] = work.failed_tasks("a/err", limit=2)
    [third] = work.failed_tasks("a/err", after=second.place)
    assert [first.id, second.id, third.id] == ids


@pytest.mark.served_everywhere
def test_a_failed_task_begins_anew_where_it_failed(work: WorkQueue, clock: ManualClock) -> None:
    task = failed(work, value={"n": 1})
    assert (task.queue, task.failed_in) == ("a/err", "a")
    clock.advance(seconds=5)
    done = work.replay_failed("a/err")
    assert (done.matched, done.replayed, done.skipped, done.stopped) == (1, 1, 0, False)
    [again] = work.tasks("a")
    assert (again.id, again.version, again.value) == (task.id, task.version + 1, {"n": 1})
    assert (again.attempt, again.err, again.claims, again.failed_in) == (0, "", 0, "")
    assert (again.at, again.claimant) == (clock.now(), "")
    assert work.queues() == {"a": 1}
    [stats] = work.queue_stats()
    assert (stats.available, stats.max_claims) == (1, 0)
    assert claimed(work).id == task.id


def test_tasks_of_several_queues_go_back_each_to_its_own(work: WorkQueue) -> None:
    for queue in ("a", "b", "a"):
        failed(work, queue)
    assert [one.failed_in for one in work.failed_tasks("a/err")] == ["a", "b", "a"]
    assert work.replay_failed("a/err", failed_in="b").replayed == 1
    assert work.queues() == {"a/err": 2, "b": 1}
    assert work.replay_failed("a/err").replayed == 2
    assert work.queues() == {"a": 2, "b": 1}


def test_they_may_go_to_another_queue(work: WorkQueue) -> None:
    failed(work)
    assert work.replay_failed("a/err", to="slow").replayed == 1
    assert work.queues() == {"slow": 1}


@pytest.mark.parametrize(("text", "count"), [("TIMEOUT", 2), ("100%", 1), ("no", 0), ("_", 0)])
def test_they_are_chosen_by_the_text_of_their_error(work: WorkQueue, text: str, count: int) -> None:
    for err in ("Timeout of mail", "a timeout: 100% full", "broken"):
        failed(work, err=err)
    assert len(work.failed_tasks("a/err", error_text=text)) == count
    done = work.replay_failed("a/err", error_text=text)
    assert (done.matched, done.replayed) == (count, count)
    assert work.queues().get("a", 0) == count


def test_a_dry_run_shows_the_first_and_changes_nothing(work: WorkQueue) -> None:
    tasks = [failed(work, value=number) for number in range(12)]
    done = work.replay_failed("a/err", dry_run=True)
    assert (done.matched, done.replayed) == (12, 0)
    assert [one.id for one in done.first] == [task.id for task in tasks[:10]]
    assert done.first[0].value is UNREAD
    assert work.queues() == {"a/err": 12}


def test_batches_tell_their_progress_and_stop(work: WorkQueue) -> None:
    new = work.modify(*(Insert(queue="a") for _ in range(250))).inserted
    work.modify(*(task.change(queue="a/err", attempt=1, err="x") for task in new))
    told, stop = list[tuple[int, int]](), threading.Event()

    def progress(done: int, matched: int) -> None:
        told.append((done, matched))
        stop.set()

    done = work.replay_failed("a/err", progress=progress, stop=stop)
    assert (done.matched, done.replayed, done.stopped) == (250, 100, True)
    assert told == [(100, 250)]
    assert work.queues() == {"a": 100, "a/err": 150}
    assert work.replay_failed("a/err").replayed == 150
    assert work.replay_failed("a/err", stop=lambda: True).matched == 0


def test_tasks_that_fail_again_meanwhile_wait_for_the_next_call(
    work: WorkQueue, clock: ManualClock
) -> None:
    new = work.modify(*(Insert(queue="a") for _ in range(250))).inserted
    work.modify(*(task.change(queue="a/err", attempt=1, err="x") for task in new))
    told = list[tuple[int, int]]()

    def fail_again(done: int, matched: int) -> None:
        told.append((done, matched))
        clock.advance(seconds=1)
        again = work.tasks("a")
        work.modify(*(task.change(queue="a/err", attempt=1, err="again") for task in again))

    done = work.replay_failed("a/err", progress=fail_again)
    assert (done.matched, done.replayed, done.skipped, done.stopped) == (250, 250, 0, False)
    assert told[-1] == (250, 250)
    assert {task.err for task in work.failed_tasks("a/err")} == {"again"}


def test_a_preview_reads_few_tasks_at_a_time(work: WorkQueue) -> None:
    """So it needs little memory, whatever their number and the length of their errors."""
    for _ in range(2):
        new = work.modify(*(Insert(queue="a") for _ in range(1_000))).inserted
        work.modify(
            *(task.change(queue="a/err", attempt=1, err=f"{task.id}{'x' * 5_000}") for task in new)
        )
    tracemalloc.start()
    try:
        assert work.replay_failed("a/err", dry_run=True).matched == 2_000
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_what_others_hold_or_have_changed_stays(make_work: MakeWork, clock: ManualClock) -> None:
    work = make_work(claimant="me", clock=clock)
    first, second = failed(work), failed(work)
    held = work.claim("a/err", claimant="you")
    assert held.id == first.id
    done = work.replay_failed("a/err")
    assert (done.matched, done.replayed, done.skipped) == (2, 1, 1)
    assert {one.id for one in work.tasks("a")} == {second.id}
    assert work.replay_failed("a/err", claimant="you").replayed == 1


def test_a_replay_is_an_action_that_a_version_guards(work: WorkQueue) -> None:
    task = failed(work, value=b"\0\1")
    newer = moved(work, task, err="seen", queue="a/err")
    with pytest.raises(DependencyError) as refused:
        work.modify(task.replay(), Insert(queue="b"))
    assert refused.value.of(FaultKind.CHANGE) == (task.ref,)
    modified = work.modify(newer.replay(), Insert(queue="b"))
    assert modified.changed[0].value is UNREAD
    assert work.tasks("a")[0].value == b"\0\1"
    with pytest.raises(InvalidRequestError, match="nobody knows where it came from"):
        work.tasks("b")[0].replay()
    [elsewhere] = work.modify(work.tasks("b")[0].replay("c")).changed
    assert elsewhere.queue == "c"


def test_where_a_task_has_failed_is_kept_while_it_has_an_error(work: WorkQueue) -> None:
    task = failed(work)
    assert (task := moved(work, task, queue="triage")).failed_in == "a"
    assert (task := moved(work, task, attempt=9, err="again")).failed_in == "a"
    assert (task := work.modify(task.renew(0)).changed[0]).failed_in == "a"
    assert claimed(work, "triage").failed_in == "a"
    assert (task := moved(work, work.tasks("triage")[0], queue="a")).failed_in == ""
    assert (task := moved(work, task, queue="b")).failed_in == ""  # it only takes its error along
    assert (task := moved(work, task, queue="b/err", err="other")).failed_in == "b"
    assert moved(work, task, err="", attempt=0).failed_in == ""


def test_a_retry_and_a_move_without_an_error_are_no_failures(work: WorkQueue) -> None:
    task = moved(work, work.insert("a"), attempt=1, err="once")
    assert task.failed_in == ""
    assert moved(work, task, queue="next", attempt=0, err="").failed_in == ""
    assert work.failed_tasks("a") == work.failed_tasks("next") == []


def test_a_worker_does_what_was_replayed(make_work: MakeWork) -> None:
    work = make_work(claimant="me")
    broken = True

    def handle(_job: Job) -> None:
        if broken:
            raise ValueError("not yet")

    work.insert("mail", {"to": "ann"})
    Worker(work, handle, "mail", max_attempts=1).run(until_empty=True)
    [task] = work.failed_tasks("mail/err")
    assert (task.failed_in, task.value) == ("mail", {"to": "ann"})
    broken = False
    assert work.replay_failed("mail/err").replayed == 1
    Worker(work, handle, "mail", max_attempts=1).run(until_empty=True)
    assert work.queues() == {}


@pytest.mark.database_only
def test_a_replay_and_a_read_end_with_the_callers_transaction(
    work: WorkQueue, orders: Orders
) -> None:
    task = failed(work)
    with orders.engine.connect() as connection:
        assert work.failed_tasks("a/err", connection=connection) == [task]
        work.modify(Replay(task.ref, "a"), connection=connection)
        assert work.failed_tasks("a/err", connection=connection) == []
    assert work.failed_tasks("a/err") == [task]


def test_impossible_arguments_are_refused(work: WorkQueue) -> None:
    calls: list[tuple[type[Exception], Any]] = [
        (InvalidRequestError, lambda: work.failed_tasks("")),
        (InvalidRequestError, lambda: work.failed_tasks("a", failed_in="")),
        (InvalidRequestError, lambda: work.failed_tasks("a", error_text="")),
        (InvalidRequestError, lambda: work.replay_failed("a", to="")),
        (ConfigurationError, lambda: work.replay_failed("a", progress=1)),  # type: ignore[arg-type]
        (ConfigurationError, lambda: work.replay_failed("a", stop=1)),  # type: ignore[arg-type]
    ]
    for kind, call in calls:
        with pytest.raises(kind):
            call()


def test_a_replay_and_the_failed_tasks_are_awaited(work: WorkQueue) -> None:
    async def run() -> None:
        failed(work)
        assert len(await work.failed_tasks_async("a/err")) == 1
        assert (await work.replay_failed_async("a/err", error_text="broke")).replayed == 1

    asyncio.run(run())
