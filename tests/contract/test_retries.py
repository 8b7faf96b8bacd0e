"""Retries: what happens after a handler has failed, and when nothing more happens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from bus.persistent import PersistentBus
from queue_core.model.entry import Entry
from queue_core.model.retry import Failure, GiveUp, RetryLater, RetryPolicy
from queue_core.model.retry_policies import ExponentialRetries, ImmediateRetries, ScheduledRetries
from queue_core.model.states import State
from queue_core.runtime.manual_clock import ManualClock
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder, ended, eventually, states

START = datetime(2026, 1, 1, tzinfo=UTC)
LONG_LEASE: dict[str, Any] = {"lease_seconds": 1e6}
"""Days may pass in a test without the node's lease ending."""


def _failed(bus: PersistentBus, error_count: int) -> Entry:
    """Wait until the only entry has been written back after so many failures."""

    def written() -> list[Entry]:
        found = bus.find(states=[State.AVAILABLE])
        return found if found and found[0].error_count == error_count else []

    return eventually(written, f"{error_count} failures are written")[0]


def test_by_default_a_failing_event_runs_four_times_and_ends_failed_with_the_reason(
    bus: PersistentBus,
) -> None:
    recorder = Recorder(failures=99, error=ValueError("no such customer"))
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert recorder.calls == 4
    assert (entry.processing_state, entry.error_count) == (State.FAILED, 4)
    assert (entry.last_error or "").startswith("ValueError: no such customer\n")
    assert "raise self._error" in (entry.last_error or "")
    assert [context.attempt for context in recorder.contexts] == [1, 2, 3, 4]
    assert bus.find() == []


@pytest.mark.parametrize("failures", [1, 3])
def test_an_event_that_succeeds_in_time_ends_processed_with_its_failures_counted(
    bus: PersistentBus, failures: int
) -> None:
    recorder = Recorder(failures=failures)
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.error_count, recorder.calls) == (
        State.PROCESSED,
        failures,
        failures + 1,
    )


@pytest.mark.parametrize("error", [MemoryError("full"), KeyboardInterrupt(), GeneratorExit()])
def test_an_error_that_is_no_exception_is_a_failure_too(
    bus: PersistentBus, error: BaseException
) -> None:
    recorder = Recorder(failures=99, error=error)
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.error_count) == (State.FAILED, 4)


def test_a_schedule_counts_from_the_original_date(make_bus: MakeBus) -> None:
    clock = ManualClock(START)
    bus = make_bus(clock=clock, retry=ScheduledRetries(), **LONG_LEASE)
    recorder = Recorder(failures=99)
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(1))
    for number, minutes in enumerate((5, 15, 60, 360, 1440), start=1):
        due = START + timedelta(minutes=minutes)
        assert _failed(bus, number).effective_date == due
        assert recorder.calls == number
        clock.advance_to(due)
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.error_count, recorder.calls) == (State.FAILED, 6, 6)
    assert entry.finished_date == START + timedelta(days=1)


def test_a_retry_is_not_run_before_its_time(make_bus: MakeBus) -> None:
    clock = ManualClock(START)
    bus = make_bus(clock=clock, retry=ScheduledRetries((60.0,)), **LONG_LEASE)
    recorder, other = Recorder(failures=1), Recorder()
    bus.subscribe(Order, recorder, name="retried")
    bus.subscribe("other", other, name="other")
    bus.start()
    bus.post(Order(1))
    _failed(bus, 1)
    clock.advance(seconds=59.999)
    bus.post({}, event_name="other")
    other.wait()
    assert recorder.calls == 1
    clock.advance(seconds=0.001)
    recorder.wait(2)
    ended(bus, 2)


def test_exponential_retries_double_with_jitter_and_stop_at_their_limit(make_bus: MakeBus) -> None:
    clock = ManualClock(START)
    policy = ExponentialRetries(
        initial_seconds=10,
        factor=2,
        maximum_seconds=30,
        max_retries=3,
        jitter=0.5,
        random=Random(1),  # noqa: S311 -- a test's own
    )
    expected = Random(1)  # noqa: S311 -- the same numbers
    bus = make_bus(clock=clock, retry=policy, **LONG_LEASE)
    bus.subscribe(Order, Recorder(failures=99))
    bus.start()
    bus.post(Order(1))
    for number, seconds in enumerate((10, 20, 30), start=1):
        entry = _failed(bus, number)
        delay = timedelta(seconds=seconds * (1 - 0.5 * expected.random()))
        assert entry.effective_date == clock.now() + delay
        clock.advance_to(entry.effective_date)
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.error_count) == (State.FAILED, 4)


def test_a_handler_chooses_its_own_delay_for_as_long_as_it_wants(make_bus: MakeBus) -> None:
    clock = ManualClock(START)
    bus = make_bus(clock=clock, retry=ImmediateRetries(0), **LONG_LEASE)
    recorder = Recorder(failures=3, error=RetryLater(timedelta(hours=2), "the shop is closed"))
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(1))
    for number in (1, 2, 3):
        assert _failed(bus, number).effective_date == START + timedelta(hours=2 * number)
        clock.advance(seconds=7200)
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.error_count) == (State.PROCESSED, 3)


def test_a_handler_that_gives_up_ends_the_entry_at_once(bus: PersistentBus) -> None:
    recorder = Recorder(failures=99, error=GiveUp("it is gone"))
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.error_count, recorder.calls) == (State.FAILED, 1, 1)
    assert (entry.last_error or "").startswith("GiveUp: it is gone")


def test_each_subscriber_has_a_policy_of_its_own(bus: PersistentBus) -> None:
    once, thrice = Recorder(failures=99), Recorder(failures=99)
    bus.subscribe(Order, once, name="once", retry=ImmediateRetries(0))
    bus.subscribe(Order, thrice, name="thrice", retry=ImmediateRetries(2))
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (once.calls, thrice.calls) == (1, 3)
    assert (entry.processing_state, entry.error_count) == (State.FAILED, 3)


@pytest.mark.parametrize("node_name", ["the same", "another"])
def test_scheduled_retries_survive_a_restart(make_bus: MakeBus, node_name: str) -> None:
    clock = ManualClock(START)
    policy = ScheduledRetries((60.0, 3600.0))
    first = make_bus(clock=clock, node_name="the same", retry=policy)
    failing = Recorder(failures=99)
    first.subscribe(Order, failing, name="handler")
    first.start()
    record_id = first.post(Order(1))
    _failed(first, 1)
    first.close()
    assert failing.calls == 1

    second = make_bus(clock=clock, node_name=node_name, retry=policy)
    recorder = Recorder()
    second.subscribe(Order, recorder, name="handler")
    second.start()

    def ran() -> bool:
        clock.advance(seconds=1)
        return recorder.calls > 0

    eventually(ran, "the retry runs on the second bus")
    (entry,) = ended(second)
    assert recorder.events == [Order(1)]
    assert (entry.processing_state, entry.error_count) == (State.PROCESSED, 1)
    assert entry.effective_date == START + timedelta(seconds=60)
    assert record_id in {entry.record_id, entry.origin_id}


def test_a_hook_is_told_of_each_failed_entry_once(bus: PersistentBus) -> None:
    told = list[tuple[int, str]]()

    @bus.on_failed
    def note(entry: Entry, last_error: str) -> None:
        told.append((entry.record_id, last_error.partition("\n")[0]))
        raise ValueError("a hook's own error harms nobody")

    bus.subscribe(Order, Recorder(failures=5))
    bus.start()
    failed = bus.post(Order(1))
    ended(bus, 1)
    eventually(lambda: told, "the hook is called")
    bus.post(Order(2))
    assert states(ended(bus, 2)) == [State.FAILED, State.PROCESSED]
    assert told == [(failed, "RuntimeError: the handler fails")]


class BrokenPolicy:
    def next_date(self, failure: Failure) -> datetime | None:
        raise ZeroDivisionError(failure.error_count)


def test_a_policy_that_fails_ends_the_retries_and_says_so(make_bus: MakeBus) -> None:
    policy: RetryPolicy = BrokenPolicy()
    bus = make_bus(retry=policy)
    bus.subscribe(Order, Recorder(failures=99))
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.error_count) == (State.FAILED, 1)
    assert "ZeroDivisionError" in (entry.last_error or "")


def test_subscribers_with_different_schedules_each_run_at_their_own_times(
    make_bus: MakeBus,
) -> None:
    clock = ManualClock(START)
    bus = make_bus(clock=clock, **LONG_LEASE)
    soon, late = Recorder(failures=99), Recorder(failures=99)
    bus.subscribe(Order, soon, name="soon", retry=ScheduledRetries((60.0,)))
    bus.subscribe(Order, late, name="late", retry=ScheduledRetries((3600.0,)))
    bus.start()
    bus.post(Order(1))
    assert _failed(bus, 1).effective_date == START + timedelta(seconds=60)
    clock.advance(seconds=60)
    soon.wait(2)
    assert _failed(bus, 2).effective_date == START + timedelta(seconds=3600)
    assert late.calls == 1, "an hour has not passed for this one"
    clock.advance(seconds=3540)
    assert states(ended(bus)) == [State.FAILED]
    assert (soon.calls, late.calls) == (2, 2)
