"""Turns at a serial handler, in the order of submission whichever thread is faster."""

from __future__ import annotations

from dataclasses import dataclass, field

from queue_core.running.subscriber import Turns


@dataclass
class Pool:
    accepting: bool = True

    def turn(self, run: Run, *, come: bool) -> None:
        """Nobody counts."""


@dataclass(eq=False)
class Run:
    pool: Pool = field(default_factory=Pool)


def expected(turns: Turns, count: int) -> list[Run]:
    runs = [Run() for _ in range(count)]
    for run in runs:
        turns.expect(run)
    return runs


def test_who_is_expected_first_enters_first() -> None:
    turns = Turns()
    first, second, third = expected(turns, 3)
    assert not turns.enter(third)
    assert not turns.enter(second)
    assert turns.enter(first)
    assert turns.leave(first) is second
    assert turns.enter(second)
    assert turns.leave(second) is third


def test_a_place_that_is_given_up_keeps_nobody_waiting() -> None:
    turns = Turns()
    first, second = expected(turns, 2)
    assert not turns.enter(second)
    assert turns.leave(first) is second
    assert turns.enter(second)


def test_who_arrives_while_a_turn_is_handed_on_does_not_overtake() -> None:
    turns = Turns()
    first, second, third = expected(turns, 3)
    assert turns.enter(first)
    assert not turns.enter(second)
    assert turns.leave(first) is second
    assert not turns.enter(third)
    assert turns.enter(second)
    assert turns.leave(second) is third


def test_runs_that_a_stopped_pool_has_kept_are_not_waited_for() -> None:
    turns = Turns()
    (left,) = expected(turns, 1)
    left.pool.accepting = False
    (later,) = expected(turns, 1)
    assert turns.enter(later)


def test_a_run_that_comes_to_it_after_another_handler_waits_for_nobody_who_is_to_come() -> None:
    turns = Turns()
    (to_come,) = expected(turns, 1)
    passing = Run()
    assert turns.enter(passing)
    assert not turns.enter(to_come)
    assert turns.leave(passing) is to_come
