"""Rates of queues: how many tasks are claimed in a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from queue_core.runtime.clock import SystemClock
from queue_core.runtime.manual_clock import ManualClock
from tests import requirements as needs
from tests.contract.harness import BOUND_SECONDS, Machine
from tests.contract.work_queue.claiming import claimed
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.limited import HOUR, fill
from work_queue.work_queue import WorkQueue

SECOND, DAY = timedelta(seconds=1), timedelta(days=1)


@pytest.mark.served_everywhere
def test_no_more_tasks_are_claimed_than_the_rate_allows(
    work: WorkQueue, clock: ManualClock
) -> None:
    fill(work, 20)
    work.limit("a", rate=2, per=SECOND, burst=3)
    assert len(work.claim_many("a", limit=9, timeout_seconds=0)) == 3
    assert work.try_claim("a") is None
    clock.advance(seconds=0.5)
    claimed(work)
    assert work.try_claim("a") is None
    clock.advance(seconds=60)
    assert len(work.claim_many("a", limit=9, timeout_seconds=0)) == 3
    clock.advance(seconds=0.4)
    assert work.try_claim("a") is None


def test_a_claim_counts_for_the_rate_whatever_becomes_of_it(
    work: WorkQueue, clock: ManualClock
) -> None:
    fill(work, 2)
    work.limit("a", rate=1, per=SECOND)
    work.modify(claimed(work).release())
    assert work.try_claim("a") is None
    work.limit("a", rate=1, per=SECOND, concurrency=5)
    assert work.try_claim("a") is None
    clock.advance(seconds=1)
    claimed(work)


@pytest.mark.parametrize("former", [{"rate": 1, "per": DAY}, {"rate": 9, "per": DAY, "burst": 9}])
def test_a_higher_rate_holds_for_the_next_claim(
    work: WorkQueue, clock: ManualClock, former: dict[str, Any]
) -> None:
    fill(work, 30)
    work.limit("a", **former)
    assert len(work.claim_many("a", limit=9, timeout_seconds=0)) == former["rate"]
    work.limit("a", rate=2, per=SECOND, burst=3)
    claimed(work)
    assert work.try_claim("a") is None
    clock.advance(seconds=0.5)
    claimed(work)
    assert work.try_claim("a") is None


@pytest.mark.database_only
@needs.machine_clock
def test_a_rate_goes_on_when_the_clock_was_set_back(make_work: MakeWork, machine: Machine) -> None:
    work = make_work()
    fill(work, 3)
    work.limit("a", rate=2, per=timedelta(minutes=1))
    claimed(work)
    machine.set_clock(-HOUR)
    work = make_work(clock=SystemClock())
    fill(work, 3)
    claimed(work)
    assert work.try_claim("a") is None


@pytest.mark.database_only
def test_many_threads_claim_no_more_than_the_rate_allows(
    make_work: MakeWork, clock: ManualClock
) -> None:
    works = [make_work(clock=clock) for _ in range(2)]
    fill(works[0], 30)
    works[0].limit("a", rate=10, per=SECOND, burst=4)
    with ThreadPoolExecutor(8) as pool:
        for seconds, expected in ((0, 4), (0.1, 1), (0.25, 2), (0.04, 0), (0.01, 1)):
            clock.advance(seconds=seconds)
            claims = [pool.submit(works[number % 2].try_claim, "a") for number in range(8)]
            taken = [claim.result(BOUND_SECONDS) for claim in claims]
            assert sum(task is not None for task in taken) == expected
