"""How many entries may be claimed: each rule of `Budget` without a database."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from queue_core.claiming.budget import BATCHES, FAIR_SHARE, Budget
from queue_core.holding.ledger import Ledger
from queue_core.holding.pace import LULL_SECONDS, WINDOW_SECONDS, Pace
from queue_core.model.config import BusConfig
from queue_core.model.lanes import ANY_NODE, SUSPECT, Lane
from queue_core.runtime.manual_clock import ManualClock

OWN, THREADS, MOST = Lane("a"), 2, 10


class Subject:
    def __init__(self, queue_capacity: int = 1_000) -> None:
        config = BusConfig(
            handler_threads=THREADS, max_entries_claimed=MOST, queue_capacity=queue_capacity
        )
        self.ledger = Ledger(queue_capacity)
        self.clock = ManualClock()
        self.pace = Pace(self.clock)
        self.budget = Budget(config, self.ledger, self.pace)
        self._last = 0

    def hold(self, entries: int, lane: Lane = OWN) -> range:
        ids = range(self._last + 1, self._last + 1 + entries)
        self._last += entries
        self.ledger.add(((record_id, 1) for record_id in ids), lane)
        return ids

    def ended(self, entries: int, *, busy: float, passed: float = WINDOW_SECONDS) -> None:
        """Handlers were at work for `busy` of the seconds that have `passed`."""
        self.clock.advance(seconds=passed)
        self.pace.ended(entries, busy)


@pytest.fixture
def subject() -> Subject:
    return Subject()


def elsewhere(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_the_pool_has_room_for_its_threads_and_a_few_claims(subject: Subject) -> None:
    assert subject.budget.room() == THREADS + BATCHES * MOST
    subject.hold(5)
    assert subject.budget.room() == THREADS + BATCHES * MOST - 5


def test_a_small_queue_capacity_bounds_the_room_but_never_below_the_threads() -> None:
    assert Subject(queue_capacity=7).budget.room() == 7
    assert Subject(queue_capacity=1).budget.room() == THREADS


def test_claims_of_the_own_lane_are_full_or_wait(subject: Subject) -> None:
    assert subject.budget.limit(OWN) == MOST
    ids = subject.hold(THREADS + BATCHES * MOST - 3)
    assert subject.budget.limit(OWN) == 0, "few large claims"
    assert subject.budget.limit(OWN, ids[:7]) == MOST, "what is about to end makes room"


def test_of_what_any_node_may_run_a_share_by_threads_is_held_and_more_by_a_fast_node(
    subject: Subject,
) -> None:
    assert subject.budget.limit(ANY_NODE) == FAIR_SHARE * THREADS
    subject.hold(FAIR_SHARE * THREADS, ANY_NODE)
    assert subject.budget.limit(ANY_NODE) == 0
    subject.ended(30, busy=WINDOW_SECONDS)
    assert subject.budget.limit(ANY_NODE) == MOST


def test_a_full_own_lane_keeps_no_node_from_its_share(subject: Subject) -> None:
    subject.hold(THREADS + BATCHES * MOST)
    assert subject.budget.limit(ANY_NODE) == FAIR_SHARE * THREADS


def test_one_suspect_is_held_at_a_time(subject: Subject) -> None:
    assert subject.budget.limit(SUSPECT) == 1
    subject.hold(1, SUSPECT)
    assert subject.budget.limit(SUSPECT) == 0


def test_what_another_thread_is_about_to_claim_is_left_out_and_what_this_one_is_not(
    subject: Subject,
) -> None:
    found = list[int]()
    with subject.budget.booked(ANY_NODE) as limit:
        assert limit == FAIR_SHARE * THREADS
        assert subject.budget.limit(ANY_NODE) == limit
        elsewhere(lambda: found.append(subject.budget.limit(ANY_NODE)))
    elsewhere(lambda: found.append(subject.budget.limit(ANY_NODE)))
    assert found == [0, FAIR_SHARE * THREADS]


def test_a_booking_ends_whatever_is_raised_in_it(subject: Subject) -> None:
    def fail() -> None:
        with pytest.raises(ZeroDivisionError), subject.budget.booked(ANY_NODE):
            raise ZeroDivisionError

    elsewhere(fail)
    assert subject.budget.limit(ANY_NODE) == FAIR_SHARE * THREADS


def test_threads_have_enough_when_they_are_fast_and_a_claim_lies_before_them(
    subject: Subject,
) -> None:
    subject.ended(MOST, busy=WINDOW_SECONDS)
    subject.hold(THREADS + MOST)
    assert not subject.budget.suffices
    subject.hold(1)
    assert subject.budget.suffices


def test_a_node_whose_handlers_had_to_wait_may_hold_twice_as_many(subject: Subject) -> None:
    """Its turns to write come each 0.3 s, and it ends at once what it has claimed."""
    held = list[int]()
    for _ in range(4):
        held.append(max(FAIR_SHARE * THREADS, subject.pace.entries))
        subject.ended(held[-1], busy=0.001, passed=3 * WINDOW_SECONDS)
    assert held == [4, 8, 16, 32]


def test_a_node_whose_handlers_are_busy_may_hold_what_they_end_in_a_window(
    subject: Subject,
) -> None:
    for _ in range(4):
        subject.ended(30, busy=3 * WINDOW_SECONDS, passed=3 * WINDOW_SECONDS)
        assert subject.pace.entries == 10


def test_runs_that_overlap_keep_handlers_busy_for_the_time_that_has_passed(
    subject: Subject,
) -> None:
    for _ in range(4):
        subject.ended(3, busy=1.0, passed=WINDOW_SECONDS)
        assert subject.pace.entries == 3


def test_what_ended_before_a_lull_says_nothing(subject: Subject) -> None:
    subject.ended(30, busy=WINDOW_SECONDS)
    subject.clock.advance(seconds=LULL_SECONDS + 0.1)
    assert subject.pace.entries == 0
