"""Handlers that post, and handlers that break the transaction they run in."""

from __future__ import annotations

import threading

import pytest

from bus.persistent import PersistentBus
from queue_core.model.mode import Mode
from queue_core.model.retry_policies import ImmediateRetries
from queue_core.model.states import State
from queue_core.running.subscriber import EntryContext
from tests.contract.conftest import MakeBus, Orders
from tests.contract.harness import (
    BOUND_SECONDS,
    Order,
    Recorder,
    ended,
    eventually,
    lifecycle_of,
    states,
)


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
    eventually(lambda: not lifecycle_of(bus).running, "the bus stops")
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
