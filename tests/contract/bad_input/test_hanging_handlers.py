"""Handlers that hang, and coroutines that do not end."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import select

from bus.memory import InMemoryBus
from bus.persistent import PersistentBus
from queue_core.model.config import BusConfig
from queue_core.model.retry_policies import ImmediateRetries
from queue_core.model.states import State
from queue_core.running.subscriber import EntryContext
from tests.contract.conftest import MakeBus
from tests.contract.harness import (
    BOUND_SECONDS,
    Order,
    Recorder,
    database_of,
    ended,
    engine_of,
    eventually,
    handler_threads,
    states,
)


@pytest.fixture
def hanging() -> Iterator[Recorder]:
    """A handler that hangs until the test is over."""
    recorder = Recorder(hold=True)
    yield recorder
    recorder.release()


def _hang_in_a_named_place(recorder: Recorder) -> Callable[[Order, EntryContext], None]:
    def stuck_in_here(event: Order, context: EntryContext) -> None:
        recorder(event, context)

    return stuck_in_here


def test_the_stack_of_a_hanging_handler_is_logged_once(
    make_bus: MakeBus, hanging: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    # Long enough for a thread on a busy machine to come from its run's start into the handler.
    bus = make_bus(max_execution_seconds=0.5, poll_interval_seconds=0.02)
    bus.subscribe(Order, _hang_in_a_named_place(hanging))
    bus.start()

    def overdue(record_id: int) -> list[str]:
        told = f"handler_overdue record_id={record_id} "
        return [line for line in caplog.messages if line.startswith(told)]

    with caplog.at_level(logging.WARNING):
        first = bus.post(Order(1))
        (message,) = eventually(lambda: overdue(first), "the watchdog speaks")
        assert "stuck_in_here" in message
        # When it speaks of another one it has looked again, and has not said it again.
        second = bus.post(Order(2))
        eventually(lambda: overdue(second), "the watchdog speaks again")
        assert overdue(first) == [message]


def test_a_stop_ends_within_its_timeout_and_says_that_a_handler_still_runs(
    make_bus: MakeBus, hanging: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    bus = make_bus(handler_threads=2)
    bus.subscribe(Order, hanging)
    bus.start()
    record_id = bus.post(Order(1))
    hanging.wait()
    asked = time.monotonic()
    with caplog.at_level(logging.ERROR):
        assert bus.stop(timeout_seconds=0.1) is False
    assert time.monotonic() - asked < BOUND_SECONDS / 2
    assert any("handlers_still_running" in record.getMessage() for record in caplog.records)
    # Its entry is still its own until the lease has ended: nobody may start it meanwhile.
    (entry,) = bus.find()
    assert (entry.record_id, entry.processing_state) == (record_id, State.IN_PROCESSING)


def test_the_entry_of_a_handler_that_hung_at_the_stop_runs_on_another_node_and_counts_once(
    make_bus: MakeBus, hanging: Recorder
) -> None:
    first = make_bus(lease_seconds=0.9)
    first.subscribe(Order, hanging)
    first.start()
    record_id = first.post(Order(1))
    hanging.wait()
    assert not first.stop(timeout_seconds=0.1)
    heir = make_bus(lease_seconds=0.9, reap_period_seconds=0.05)
    recorder = Recorder()
    heir.subscribe(Order, recorder)
    heir.start()
    assert recorder.wait() == [Order(1)]
    (entry,) = ended(heir)
    hanging.release()
    assert (entry.processing_state, entry.origin_id) == (State.PROCESSED, record_id)
    assert sorted(states(heir.history())) == [State.PROCESSED, State.REAPED]


def test_a_hanging_coroutine_does_not_keep_others_from_running_nor_a_stop_from_ending(
    bus: PersistentBus,
) -> None:
    began, unwound = threading.Event(), threading.Event()

    async def hang(_event: Order) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            unwound.set()

    bus.subscribe(Order, hang)
    other = Recorder()
    bus.subscribe("other", other)
    bus.start()
    bus.post(Order(1))
    assert began.wait(BOUND_SECONDS)
    bus.post({}, event_name="other")
    other.wait()
    threads = handler_threads()
    assert bus.stop(timeout_seconds=0.1) is False
    assert unwound.wait(BOUND_SECONDS)
    eventually(
        lambda: not any(thread.is_alive() for thread in threads),
        "no thread waits for the coroutine",
    )


def test_a_stop_that_cancels_a_coroutine_counts_no_failure_and_calls_nobody_after_it() -> None:
    bus, other = InMemoryBus(BusConfig(handler_threads=1, retry=ImmediateRetries(0))), Recorder()
    began, calls = threading.Event(), list[Order]()

    async def hang_once(event: Order) -> None:
        calls.append(event)
        began.set()
        if len(calls) == 1:
            await asyncio.Event().wait()

    bus.subscribe(Order, hang_once)
    bus.subscribe(Order, other)
    bus.start()
    bus.post(Order(1))
    assert began.wait(BOUND_SECONDS)
    threads = handler_threads()

    assert not bus.stop(timeout_seconds=0.05)

    eventually(
        lambda: not any(thread.is_alive() for thread in threads), "the coroutine has unwound"
    )
    (entry,) = bus.find()
    assert (entry.error_count, bus.history(), other.calls) == (0, [], 0)
    with bus:
        bus.wait_until_idle()
    assert (states(bus.history()), len(calls), other.calls) == ([State.PROCESSED], 2, 1)


def test_the_entry_of_a_coroutine_that_a_stop_has_cancelled_runs_elsewhere_without_a_failure(
    make_bus: MakeBus,
) -> None:
    first, recorder, began = make_bus(lease_seconds=0.9), Recorder(), threading.Event()

    async def hang(_event: Order) -> None:
        began.set()
        await asyncio.Event().wait()

    first.subscribe(Order, hang)
    first.start()
    first.post(Order(1))
    assert began.wait(BOUND_SECONDS)
    assert not first.stop(timeout_seconds=0.05)

    heir = make_bus(lease_seconds=0.9, reap_period_seconds=0.05)
    heir.subscribe(Order, recorder)
    heir.start()
    assert recorder.wait() == [Order(1)]
    (entry,) = ended(heir)
    assert (entry.processing_state, entry.error_count) == (State.PROCESSED, 0)


def test_what_a_task_left_behind_raises_ends_no_other_coroutine_and_no_stop(
    bus: PersistentBus,
) -> None:
    tasks = list[asyncio.Task[None]]()

    async def leave_behind(_event: Order) -> None:
        async def leave() -> None:
            raise SystemExit(1)

        tasks.append(asyncio.create_task(leave()))

    bus.subscribe(Order, leave_behind)
    bus.start()
    for number in range(1, 4):
        bus.post(Order(number))
        eventually(lambda: sum(task.done() for task in tasks) == number, "the task has ended")  # noqa: B023 -- called here

    assert bus.stop()
    assert states(bus.history()) == [State.PROCESSED] * 3


def test_a_coroutine_that_stops_its_loop_ends_no_other_and_no_stop(bus: PersistentBus) -> None:
    recorder = Recorder()

    async def stop_the_loop(event: Order, context: EntryContext) -> None:
        recorder(event, context)
        asyncio.get_running_loop().stop()

    bus.subscribe(Order, stop_the_loop)
    bus.start()
    for number in range(1, 4):
        bus.post(Order(number))
        ended(bus, number)

    assert bus.stop()
    assert recorder.events == [Order(1), Order(2), Order(3)]
    assert states(bus.history()) == [State.PROCESSED] * 3


def test_a_stop_from_inside_a_handler_ends_and_keeps_the_entrys_outcome(
    bus: PersistentBus,
) -> None:
    stopped = threading.Event()

    @bus.subscribe(Order)
    def stop_it_all(_order: Order) -> None:
        bus.stop(timeout_seconds=1)
        stopped.set()

    bus.start()
    bus.post(Order(1))
    assert stopped.wait(BOUND_SECONDS)
    other = engine_of(bus).store.statements.main
    with database_of(bus).read() as connection:
        rows = connection.execute(select(other.c.processing_state)).scalars().all()
    assert rows in ([], [State.IN_PROCESSING.value])


def test_a_handler_that_always_overruns_its_time_uses_up_its_retries(make_bus: MakeBus) -> None:
    bus = make_bus(handler_threads=4, poll_interval_seconds=0.05, retry=ImmediateRetries(1))
    handler = Recorder(hold=True)
    bus.subscribe(Order, handler, max_run_seconds=0.1)
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    handler.wait(2)  # its time may be up before its thread has come so far
    handler.release()
    assert (entry.processing_state, entry.error_count) == (State.FAILED, 2)
    assert (entry.last_error or "").startswith("TimeoutError: ran longer than 0.1 s")
    assert handler.calls == 2
