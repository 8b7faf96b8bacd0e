"""What a handler can do wrong ends in an outcome: never in a dead thread, a lost entry or a stop that hangs."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select

from bus.memory import InMemoryBus
from bus.persistent import PersistentBus
from queue_core.errors import ConfigurationError
from queue_core.finishing.finisher import BATCH
from queue_core.model.config import BusConfig, Mode
from queue_core.model.entry import Entry, State
from queue_core.model.outcome import Outcome
from queue_core.model.retry import Failure, GiveUp, ImmediateRetries
from queue_core.running.subscriber import EntryContext
from tests.contract.conftest import MakeBus, MakeService, Orders
from tests.contract.harness import BOUND_SECONDS, Order, Recorder, ended, eventually, states


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


RAISED: dict[str, BaseException] = {
    "an ordinary error": ValueError("wrong"),
    "SystemExit": SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "GeneratorExit": GeneratorExit(),
    "CancelledError": asyncio.CancelledError(),
    "BaseException": BaseException("the root"),
    "StopIteration": StopIteration(),
    "an error that can't be told": UnspeakableError(),
    "a message no database stores": ValueError("NUL \0 and half an emoji \ud83d, % ' \" \\ €🚌"),
    "a message without end": ValueError("🚌" * 1_000_000),
    "a group": BaseExceptionGroup("all at once", [SystemExit(), ValueError("one")]),
}


# Each as a function raises it; those that end threads and event loops, as the other kinds do, too.
_CASES = [
    pytest.param(kind, error, id=f"{what} by {kind}")
    for kind in ("function", "coroutine", "exactly once")
    for what, error in RAISED.items()
    if kind == "function" or not isinstance(error, Exception)
]


@pytest.mark.parametrize(("kind", "error"), _CASES)
def test_whatever_a_handler_raises_is_a_failed_run_and_the_last_of_them_ends_the_entry(
    make_bus: MakeBus, error: BaseException, kind: str
) -> None:
    bus = make_bus(handler_threads=1, retry=ImmediateRetries(1))
    calls = list[int]()

    def handle(_event: Order, context: EntryContext) -> None:
        calls.append(context.error_count)
        raise error

    async def handle_async(event: Order, context: EntryContext) -> None:
        await asyncio.sleep(0)
        handle(event, context)

    bus.subscribe(
        Order, handle_async if kind == "coroutine" else handle, exactly_once=kind == "exactly once"
    )
    after = Recorder()
    bus.subscribe("after", after)
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.error_count, calls) == (State.FAILED, 2, [0, 1])
    # asyncio itself turns a StopIteration into a RuntimeError that names it.
    assert type(error).__name__ in (entry.last_error or "").partition("\n")[0]
    # The only thread lives, and so does the event loop.
    bus.post({}, event_name="after")
    after.wait()


def test_what_a_handler_returns_says_nothing(bus: PersistentBus) -> None:
    nonsense = [0, "no", False, object(), NotImplemented, ValueError("not raised"), iter(())]

    async def answer(order: Order) -> object:
        return nonsense[order.number]

    bus.subscribe(Order, lambda order: nonsense[order.number], name="plain")
    bus.subscribe(Order, answer, name="coroutine")
    bus.start()
    bus.post_many(Order(number) for number in range(len(nonsense)))
    assert set(states(ended(bus, len(nonsense)))) == {State.PROCESSED}


def test_a_handler_that_can_not_be_called_with_an_event_is_refused_at_once(
    bus: PersistentBus, make_service: MakeService
) -> None:
    service = make_service()
    handlers: list[Any] = [
        lambda: None,
        lambda first, second, third: (first, second, third),
        lambda first, *, option: (first, option),
        "no function",
        None,
    ]
    for handler in handlers:
        with pytest.raises(ConfigurationError):
            bus.subscribe(Order, handler)
        with pytest.raises(ConfigurationError):
            service.create_queue("shop", "bills", handler)


class _Policy:
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def next_date(self, failure: Failure) -> Any:
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer


@pytest.mark.parametrize("name", ["half an emoji \ud83d", "NUL \0", "x" * 1_001])
def test_a_name_that_no_database_stores_is_refused_at_once(bus: PersistentBus, name: str) -> None:
    with pytest.raises(ConfigurationError, match="can't be a subscriber's name"):
        bus.subscribe(Order, Recorder(), name=name)


@pytest.mark.parametrize("name", ["half an emoji \ud83d", "NUL \0", "x" * 256])
def test_an_event_name_that_no_database_stores_is_refused_at_once(
    bus: PersistentBus, name: str
) -> None:
    with pytest.raises(ConfigurationError, match="can't be the name of an event type"):
        bus.subscribe(name, Recorder())
    with pytest.raises(ConfigurationError, match="can't be the name of an event type"):
        bus.register_event(Order, name=name)


def test_an_outcome_that_can_not_be_written_keeps_back_no_other_and_no_stop(
    make_bus: MakeBus,
) -> None:
    bus = make_bus(retry=ImmediateRetries(0))
    one, other = Recorder(failures=1, hold=True), Recorder()
    bus.subscribe("one", one, name="one")
    bus.subscribe("one", other, name="other")
    bus.subscribe(Order, other)
    router = bus._engine.lifecycle._router
    bus.start()
    bus.post({}, event_name="one")
    one.wait()
    for subscriber in router.subscribers("bus", "one") or ():
        vars(subscriber)["name"] = object()  # no name that JSON could write
    bus.post_many([Order(1), Order(2)])
    other.wait(2)
    one.release()
    other.wait(3)

    assert bus.stop()
    assert states(bus.history()) == [State.PROCESSED] * 2
    assert [entry.class_name for entry in bus.find()] == ["one"]


def test_a_stop_that_can_not_write_outcomes_says_so_and_ends(bus: PersistentBus) -> None:
    def broken() -> list[Outcome]:
        raise ValueError("of our own making")

    bus.start()
    vars(bus._engine.lifecycle.finisher)["write_all"] = broken

    assert not bus.stop()
    assert bus._engine.lifecycle.node is None


@pytest.mark.parametrize(
    "answer",
    [
        RuntimeError("no rule"),
        "tomorrow",
        7,
        datetime.now(UTC).replace(tzinfo=None),
        datetime.max.replace(tzinfo=UTC),
    ],
)
def test_a_retry_policy_of_nonsense_ends_the_retries_or_waits_as_it_says(
    bus: PersistentBus, answer: Any
) -> None:
    bus.subscribe(Order, Recorder(failures=1), retry=_Policy(answer))
    bus.start()
    record_id = bus.post(Order(1))
    if isinstance(answer, datetime) and answer.tzinfo:
        (entry,) = eventually(lambda: bus.find(states=[State.AVAILABLE]), "it waits for its date")
        assert (entry.record_id, entry.effective_date, entry.error_count) == (record_id, answer, 1)
        return
    (entry,) = ended(bus)
    assert entry.processing_state is State.FAILED
    assert "No retry" in (entry.last_error or "")


def test_an_entry_failed_by_an_earlier_run_of_one_subscriber_says_by_which(
    bus: PersistentBus,
) -> None:
    def gives_up(_event: Order) -> None:
        raise GiveUp("hopeless")

    bus.subscribe(Order, gives_up, name="hopeless one")
    bus.subscribe(Order, Recorder(failures=1), name="late one")
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.progress) == (
        State.FAILED,
        {"hopeless one": False, "late one": True},
    )
    assert "hopeless one" in (entry.last_error or "")
    assert "late one" not in (entry.last_error or "")


def test_a_full_batch_of_failures_with_long_messages_is_written(make_bus: MakeBus) -> None:
    """Escaped, they are more than one packet of MariaDB holds."""
    bus = make_bus(handler_threads=1, retry=ImmediateRetries(0))
    outcomes = bus._engine.lifecycle.finisher
    last = threading.Event()

    @bus.subscribe(Order)
    def fail(order: Order) -> None:
        if order.number == BATCH - 1:
            last.set()
        raise ValueError("🚌\\" * 2_000)

    bus.start()
    turn, gathered = outcomes.turn, threading.Event()

    def write_all_at_once(**options: bool) -> float:
        gathered.wait(BOUND_SECONDS)
        return turn(**options)

    outcomes.turn = write_all_at_once  # type: ignore[method-assign]  # holds the finish loop, changes nothing
    bus.post_many(Order(number) for number in range(BATCH))
    assert last.wait(BOUND_SECONDS)
    gathered.set()
    history = ended(bus, BATCH)
    assert set(states(history)) == {State.FAILED}
    assert all((entry.last_error or "").startswith("ValueError: 🚌\\🚌\\") for entry in history)


def test_a_hook_that_fails_hinders_neither_the_other_hooks_nor_the_entry(
    bus: PersistentBus,
) -> None:
    told = Recorder()

    def fail(_entry: Entry, _error: str) -> None:
        raise SystemExit

    bus.on_failed(fail)
    bus.on_failed(lambda entry, error: told((entry, error), None))  # type: ignore[arg-type]  # no context here
    bus.subscribe(Order, Recorder(failures=9), retry=ImmediateRetries(0))
    bus.start()
    bus.post(Order(1))
    ((entry, error),) = told.wait()
    assert (entry.processing_state, error.partition(":")[0]) == (
        State.IN_PROCESSING,
        "RuntimeError",
    )


# -- hanging -----------------------------------------------------------------------------------------------------


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
    bus = make_bus(max_execution_seconds=0.05, poll_interval_seconds=0.02)
    bus.subscribe(Order, _hang_in_a_named_place(hanging))
    bus.start()

    def overdue() -> list[str]:
        return [
            record.getMessage()
            for record in caplog.records
            if "handler_overdue" in record.getMessage()
        ]

    with caplog.at_level(logging.WARNING):
        record_id = bus.post(Order(1))
        hanging.wait()
        (message,) = eventually(overdue, "the watchdog speaks")
        assert f"record_id={record_id}" in message
        assert "stuck_in_here" in message
        # Some polls later it has not said it again.
        other = Recorder()
        bus.subscribe("other", other)
        for number in range(1, 4):
            bus.post({}, event_name="other")
            other.wait(number)
        assert len(overdue()) == 1


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
    assert time.monotonic() - asked < 5
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
    threads = bus._engine.lifecycle.pool._threads.copy()
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
    threads = bus._pool._threads.copy()

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


# -- posting from inside, and at the end -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", Mode)
def test_a_handler_posts_from_inside(make_bus: MakeBus, mode: Mode) -> None:
    bus = make_bus(mode=mode, handler_threads=1)
    recorder = Recorder()

    @bus.subscribe(Order)
    def post_the_next(order: Order) -> None:
        bus.post({"after": order.number}, event_name="next")

    bus.subscribe("next", recorder)
    bus.start()
    bus.post(Order(1))
    assert recorder.wait() == [{"after": 1}]
    assert states(ended(bus, 2)) == [State.PROCESSED] * 2


@pytest.mark.parametrize("mode", Mode)
def test_what_an_exactly_once_handler_posts_on_its_connection_shares_its_fate(
    make_bus: MakeBus, orders: Orders, mode: Mode
) -> None:
    bus = make_bus(mode=mode, handler_threads=1)
    recorder = Recorder()
    runs = list[int]()

    @bus.subscribe(Order, exactly_once=True)
    def add_and_post(order: Order, context: EntryContext) -> None:
        runs.append(context.attempt)
        assert context.connection is not None
        context.connection.execute(orders.add(order.number))
        bus.post({"run": len(runs)}, event_name="next", connection=context.connection)
        if len(runs) == 1:
            raise RuntimeError("all of it is rolled back")

    bus.subscribe("next", recorder)
    bus.start()
    bus.post(Order(1))
    assert recorder.wait() == [{"run": 2}]
    assert states(ended(bus, 2)) == [State.PROCESSED] * 2
    assert (runs, orders.numbers(), recorder.calls) == ([1, 2], [1], 1)


def test_a_handler_that_posts_without_the_connection_of_its_transaction_is_not_blocked_by_it(
    bus: PersistentBus, orders: Orders
) -> None:
    """On SQLite the transaction takes its lock only at its first write."""
    recorder = Recorder()

    @bus.subscribe(Order, exactly_once=True)
    def post_then_add(order: Order, context: EntryContext) -> None:
        bus.post({}, event_name="next")
        assert context.connection is not None
        context.connection.execute(orders.add(order.number))

    bus.subscribe("next", recorder)
    bus.start()
    bus.post(Order(1))
    recorder.wait()
    assert states(ended(bus, 2)) == [State.PROCESSED] * 2
    assert orders.numbers() == [1]


def test_an_exactly_once_handler_that_ends_its_transaction_itself_has_failed(
    make_bus: MakeBus, orders: Orders
) -> None:
    bus = make_bus(retry=ImmediateRetries(0))

    @bus.subscribe(Order, exactly_once=True)
    def roll_back(order: Order, context: EntryContext) -> None:
        assert context.connection is not None
        context.connection.execute(orders.add(order.number))
        context.connection.rollback()

    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, orders.numbers()) == (State.FAILED, [])
    assert "ended its transaction" in (entry.last_error or "")


def test_an_exactly_once_handler_whose_connection_is_broken_has_failed(
    make_bus: MakeBus, orders: Orders
) -> None:
    bus = make_bus(retry=ImmediateRetries(1))
    runs = list[int]()

    @bus.subscribe(Order, exactly_once=True)
    def add(order: Order, context: EntryContext) -> None:
        runs.append(order.number)
        assert context.connection is not None
        context.connection.execute(orders.add(order.number))
        if len(runs) == 1:
            context.connection.invalidate()

    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.error_count) == (State.PROCESSED, 1)
    assert (runs, orders.numbers()) == ([1, 1], [1])


@pytest.mark.parametrize("mode", Mode)
def test_what_is_posted_while_the_bus_stops_is_delivered_at_the_next_start(
    make_bus: MakeBus, mode: Mode
) -> None:
    bus = make_bus(mode=mode, handler_threads=2)
    began, go_on = threading.Event(), threading.Event()
    recorder = Recorder()

    @bus.subscribe(Order)
    def post_late(order: Order) -> None:
        began.set()
        assert go_on.wait(BOUND_SECONDS)
        bus.post({"after": order.number}, event_name="next")

    bus.subscribe("next", recorder)
    bus.start()
    bus.post(Order(1))
    assert began.wait(BOUND_SECONDS)
    stopping = threading.Thread(target=bus.stop)
    stopping.start()
    eventually(lambda: not bus._engine.lifecycle.running, "the bus stops")
    outside = bus.post({"after": "from outside"}, event_name="next")
    go_on.set()
    stopping.join(BOUND_SECONDS)
    assert not stopping.is_alive()
    # A claim that was under way may have taken them along.
    late = bus.find() + bus.history(record_ids=[outside, outside + 1])
    assert len(late) == 2
    assert set(states(late)) <= {State.AVAILABLE, State.PROCESSED}
    bus.start()
    recorder.wait(2)
    assert set(states(ended(bus, 3))) == {State.PROCESSED}
    assert recorder.calls == 2


def test_a_stop_from_inside_a_handler_ends_and_keeps_the_entrys_outcome(bus: PersistentBus) -> None:
    stopped = threading.Event()

    @bus.subscribe(Order)
    def stop_it_all(_order: Order) -> None:
        bus.stop(timeout_seconds=1)
        stopped.set()

    bus.start()
    bus.post(Order(1))
    assert stopped.wait(BOUND_SECONDS)
    other = bus._engine.store.statements.main
    with bus._engine.database.read() as connection:
        rows = connection.execute(select(other.c.processing_state)).scalars().all()
    assert rows in ([], [State.IN_PROCESSING.value])


def test_a_handler_that_always_overruns_its_time_uses_up_its_retries(make_bus: MakeBus) -> None:
    bus = make_bus(handler_threads=4, poll_interval_seconds=0.05, retry=ImmediateRetries(1))
    handler = Recorder(hold=True)
    bus.subscribe(Order, handler, max_run_seconds=0.1)
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    handler.release()
    assert (entry.processing_state, entry.error_count) == (State.FAILED, 2)
    assert (entry.last_error or "").startswith("TimeoutError: ran longer than 0.1 s")
    assert handler.calls == 2
