"""Limits of queues: how many tasks are claimed at once, and what is told of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from queue_core.errors import InvalidRequestError
from queue_core.runtime.manual_clock import ManualClock
from tests.contract.harness import BOUND_SECONDS
from tests.contract.work_queue.claiming import claimed
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.limited import fill, frees
from work_queue.modification import Action
from work_queue.task import Task
from work_queue.work_queue import WorkQueue


@pytest.mark.served_everywhere
def test_no_more_tasks_are_claimed_at_once_than_the_limit_says(
    work: WorkQueue, make_work: MakeWork, clock: ManualClock
) -> None:
    fill(work, 5)
    work.insert("a", delay=60)
    other = make_work(clock=clock)
    work.limit("a", concurrency=3)
    claimed(work)
    assert len(other.claim_many("a", limit=5, timeout_seconds=0)) == 2
    for one in (work, other, make_work(clock=clock)):
        assert one.try_claim("a") is None
        assert one.claim_many("a", limit=2, timeout_seconds=0) == []
    assert len(work.tasks("a")) == 6


@frees
def test_a_task_that_is_claimed_no_more_gives_its_place_back(
    work: WorkQueue, free: Callable[[Task], Action]
) -> None:
    fill(work, 3)
    work.limit("a", concurrency=1)
    held = claimed(work)
    assert work.try_claim("a") is None
    work.modify(free(held))
    assert claimed(work).queue == "a"
    assert work.try_claim("a") is None


def test_the_end_of_a_lease_gives_a_place_back_and_a_renewal_keeps_it(
    work: WorkQueue, clock: ManualClock
) -> None:
    fill(work, 3)
    work.limit("a", concurrency=1)
    held = claimed(work, lease_seconds=10)
    [held] = work.modify(held.renew(20)).changed
    clock.advance(seconds=19)
    assert work.try_claim("a") is None
    [held] = work.modify(held.change(delay=5)).changed
    clock.advance(seconds=4)
    assert work.try_claim("a") is None
    clock.advance(seconds=1)
    assert claimed(work).id != held.id


def test_a_claim_of_several_queues_passes_over_a_full_one(work: WorkQueue) -> None:
    fill(work, 5)
    fill(work, 5, "b")
    work.limit("a", concurrency=1)
    taken = [claimed_of(work, "a", "b") for _ in range(6)]
    assert sorted(taken) == ["a", "b", "b", "b", "b", "b"]
    assert work.try_claim("a", "b") is None


def claimed_of(work: WorkQueue, *queues: str) -> str:
    return work.claim(*queues, timeout_seconds=BOUND_SECONDS).queue


def test_a_changed_limit_holds_for_the_next_claim(work: WorkQueue) -> None:
    fill(work, 6)
    work.limit("a", concurrency=3)
    held = work.claim_many("a", limit=9, timeout_seconds=0)
    work.limit("a", concurrency=2)
    work.modify(held[0].delete())
    assert work.try_claim("a") is None
    work.modify(held[1].delete())
    claimed(work)
    work.limit("a", concurrency=3)
    claimed(work)
    assert work.try_claim("a") is None
    assert work.unlimit("a")
    claimed(work)


def test_a_limit_counts_what_was_claimed_before_it(work: WorkQueue) -> None:
    fill(work, 3)
    held = work.claim_many("a", limit=2, timeout_seconds=0)
    work.limit("a", concurrency=1)
    assert work.try_claim("a") is None
    work.modify(held[0].delete())
    assert work.try_claim("a") is None
    work.modify(held[1].delete())
    claimed(work)


@pytest.mark.slow
@pytest.mark.database_only
def test_many_threads_of_two_clients_never_hold_more_than_the_limit(make_work: MakeWork) -> None:
    works, count, limit = [make_work() for _ in range(2)], 60, 3
    fill(works[0], count)
    works[1].limit("a", concurrency=limit)
    holding, most, done, lock = 0, 0, list[int](), threading.Lock()

    def run(work: WorkQueue) -> None:
        nonlocal holding, most
        while len(done) < count:
            task = next(iter(work.claim_many("a", limit=1, timeout_seconds=0.2)), None)
            if task is None:
                continue
            with lock:
                holding += 1
                most = max(most, holding)
            work.tasks("a", limit=1)
            with lock:
                holding -= 1
                done.append(task.value)
            work.modify(task.delete())

    with ThreadPoolExecutor(20) as pool:
        for running in [pool.submit(run, works[number % 2]) for number in range(20)]:
            running.result(4 * BOUND_SECONDS)
    assert sorted(done) == list(range(count))
    assert most <= limit


@pytest.mark.served_everywhere
def test_a_limit_is_told_as_it_was_set(work: WorkQueue, clock: ManualClock) -> None:
    assert work.limits() == []
    long = work.limit("ü" * 512, rate=7, per=timedelta(days=2, microseconds=1), burst=3, by="ann")
    assert (long.rate, long.per, long.burst) == (7, timedelta(days=2, microseconds=1), 3)
    assert (long.queue, long.concurrency, long.limited_by) == ("ü" * 512, None, "ann")
    assert long.since == clock.now()
    clock.advance(seconds=1)
    short = work.limit("a", concurrency=2, by="bob")
    assert work.limits() == [short, long]
    assert work.limits("a", "b") == [short]
    replaced = work.limit("a", rate=1000, per=1.0)
    assert (replaced.concurrency, replaced.rate, replaced.told) == (None, 1000, "1,000 in 1 s")
    assert work.limits() == [replaced, long]
    assert work.unlimit("a")
    assert not work.unlimit("a")
    assert work.limits() == [long]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"burst": 2},
        {"concurrency": 0},
        {"concurrency": True},
        {"concurrency": 2**31},
        {"rate": -1},
        {"rate": 1.5},
        {"rate": 1, "per": True},
        {"rate": 1, "per": 1e300},
        {"rate": 1, "per": timedelta()},
        {"rate": 1, "per": timedelta(days=367)},
        {"rate": 1, "burst": 0},
        {"concurrency": 1, "burst": 2},
        {"concurrency": 1, "per": timedelta(seconds=2)},
        {"concurrency": 1, "by": ""},
        {"concurrency": 1, "by": "x" * 256},
    ],
    ids=str,
)
def test_a_limit_that_means_nothing_is_refused(work: WorkQueue, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="Nothing was written"):
        work.limit("a", **options)
    for queue in ("", "x" * 513, 7):
        with pytest.raises(InvalidRequestError):
            work.limit(queue, concurrency=1)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequestError):
            work.unlimit(queue)  # type: ignore[arg-type]
    assert work.limits() == []


def test_the_awaitable_twins_do_the_same(work: WorkQueue) -> None:
    async def run() -> None:
        made = await work.limit_async("a", concurrency=1)
        assert await work.limits_async() == [made]
        await work.insert_async("a")
        await work.insert_async("a")
        held = await work.claim_async("a", timeout_seconds=BOUND_SECONDS)
        assert await work.try_claim_async("a") is None
        await work.modify_async(held.delete())
        assert await work.try_claim_async("a") is not None
        assert await work.unlimit_async("a")

    asyncio.run(run())
