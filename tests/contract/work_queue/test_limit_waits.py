"""Claims that wait for a place in a limited queue, and what wakes them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from tests import requirements as needs
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.work_queue.backends import waiting
from tests.contract.work_queue.claiming import claimed
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.limited import HOUR, fill, frees, waiting_claim
from work_queue.modification import Action
from work_queue.task import Task
from work_queue.work_queue import WorkQueue


@pytest.fixture
def waits(make_work: MakeWork) -> WorkQueue:
    """A work queue by the true time whose claims look at nothing unless they are told."""
    return make_work(claimant="me", poll_seconds=HOUR)


CHANGED: dict[str, Callable[[WorkQueue], Any]] = {
    "raised": lambda work: work.limit("a", concurrency=2),
    "ended": lambda work: work.unlimit("a"),
}


@pytest.mark.served_everywhere
@frees
def test_a_free_place_wakes_a_claim_that_waits(
    waits: WorkQueue, free: Callable[[Task], Action]
) -> None:
    fill(waits, 3)
    waits.limit("a", concurrency=1)
    held = claimed(waits, lease_seconds=HOUR)
    with waiting_claim(waits) as claim:
        waits.modify(free(held))
        assert claim.result(BOUND_SECONDS).queue == "a"


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_a_changed_limit_wakes_a_claim_that_waits(
    waits: WorkQueue, change: Callable[[WorkQueue], Any]
) -> None:
    fill(waits, 2)
    waits.limit("a", concurrency=1)
    claimed(waits, lease_seconds=HOUR)
    with waiting_claim(waits) as claim:
        change(waits)
        assert claim.result(BOUND_SECONDS).queue == "a"


@needs.heard_commits
def test_a_delete_elsewhere_wakes_a_claim_that_waits(waits: WorkQueue, make_work: MakeWork) -> None:
    other = make_work(claimant="me")
    fill(waits, 3)
    waits.limit("a", concurrency=1)
    held = claimed(waits, lease_seconds=HOUR)
    with waiting_claim(waits) as claim:
        other.modify(held.delete())
        assert claim.result(BOUND_SECONDS).queue == "a"


@pytest.mark.database_only
@needs.heard_commits
def test_a_delete_in_a_callers_transaction_wakes_a_claim_once_it_has_committed(
    waits: WorkQueue, engine: Engine
) -> None:
    fill(waits, 2)
    waits.limit("a", concurrency=1)
    held = claimed(waits, lease_seconds=HOUR)
    with waiting_claim(waits) as claim:
        with engine.begin() as connection:
            waits.modify(held.delete(), connection=connection)
            assert not claim.done()
        assert claim.result(BOUND_SECONDS).queue == "a"


@pytest.mark.parametrize("options", [{"concurrency": 1}, {"rate": 4, "per": timedelta(seconds=1)}])
def test_time_wakes_a_claim_that_waits_for_a_place(
    waits: WorkQueue, options: dict[str, Any]
) -> None:
    fill(waits, 2)
    waits.limit("a", **options)
    begun = waits.time()
    claimed(waits, lease_seconds=0.3)
    second = waits.claim("a", timeout_seconds=BOUND_SECONDS)
    assert second.modified - begun >= timedelta(seconds=0.24)
    assert waiting(waits) == 0


def test_all_that_wait_go_on_when_the_limit_ends(waits: WorkQueue) -> None:
    fill(waits, 6)
    waits.limit("a", concurrency=1)
    claimed(waits, lease_seconds=HOUR)
    with ThreadPoolExecutor(5) as pool:
        claims = [pool.submit(waits.claim, "a", timeout_seconds=BOUND_SECONDS) for _ in range(5)]
        eventually(lambda: waiting(waits) == 5)
        waits.unlimit("a")
        assert len({claim.result(BOUND_SECONDS).id for claim in claims}) == 5
