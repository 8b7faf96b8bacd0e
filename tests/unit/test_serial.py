"""The gate of a serial handler lets calls through in their order, whichever thread is faster."""

from __future__ import annotations

from dataclasses import dataclass, field

from queue_core.running.serial import SerialGate


@dataclass
class Pool:
    accepting: bool = True
    resumed: list[Run] = field(default_factory=list)

    def begins_to_wait(self, run: Run) -> None:
        """Nobody counts."""

    def waits_no_longer(self, run: Run) -> None:
        """Nobody counts."""

    def resume(self, run: Run) -> bool:
        self.resumed.append(run)
        return True


@dataclass(eq=False)
class Run:
    pool: Pool = field(default_factory=Pool)


def expected(gate: SerialGate, count: int) -> list[Run]:
    runs = [Run() for _ in range(count)]
    for run in runs:
        gate.expect(run)
    return runs


def test_who_is_expected_first_enters_first() -> None:
    gate = SerialGate()
    first, second, third = expected(gate, 3)
    assert not gate.enter(third)
    assert not gate.enter(second)
    assert gate.enter(first)
    gate.pass_on(first)
    assert second.pool.resumed == [second]
    assert gate.enter(second)
    gate.pass_on(second)
    assert third.pool.resumed == [third]


def test_a_place_that_is_given_up_keeps_nobody_waiting() -> None:
    gate = SerialGate()
    first, second = expected(gate, 2)
    assert not gate.enter(second)
    gate.pass_on(first)
    assert second.pool.resumed == [second]
    assert gate.enter(second)


def test_who_arrives_while_a_turn_is_handed_on_does_not_overtake() -> None:
    gate = SerialGate()
    first, second, third = expected(gate, 3)
    assert gate.enter(first)
    assert not gate.enter(second)
    gate.pass_on(first)
    assert second.pool.resumed == [second]
    assert not gate.enter(third)
    assert gate.enter(second)
    gate.pass_on(second)
    assert third.pool.resumed == [third]


def test_runs_that_a_stopped_pool_has_kept_are_not_waited_for() -> None:
    gate = SerialGate()
    (left,) = expected(gate, 1)
    left.pool.accepting = False
    (later,) = expected(gate, 1)
    assert gate.enter(later)


def test_a_run_that_comes_to_it_after_another_handler_waits_for_nobody_who_is_to_come() -> None:
    gate = SerialGate()
    (to_come,) = expected(gate, 1)
    passing = Run()
    assert gate.enter(passing)
    assert not gate.enter(to_come)
    gate.pass_on(passing)
    assert to_come.pool.resumed == [to_come]
