"""Exceptions that a subscriber has declared to mean success."""

from __future__ import annotations

from typing import Any, cast

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError

from bus.memory import InMemoryBus
from bus.persistent import PersistentBus
from queue_core.errors import ConfigurationError
from queue_core.model.states import State
from queue_core.running.subscriber import ExactlyOnceContext
from stickybus.testing import drain
from tests.contract.conftest import MakeService, Orders
from tests.contract.harness import Order, Recorder, ended


class AlreadyDone(LookupError):
    """The effect is there."""


@pytest.mark.parametrize("serial", [False, True])
def test_a_declared_exception_and_its_subtypes_mean_success(
    bus: PersistentBus, *, serial: bool
) -> None:
    recorder = Recorder(failures=99, error=AlreadyDone("order 1"))
    bus.subscribe(Order, recorder, serial=serial, success_on=(LookupError,))
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.error_count, recorder.calls) == (State.PROCESSED, 0, 1)
    assert entry.last_error is None


def test_an_async_handler_may_declare_some_too(bus: PersistentBus) -> None:
    async def handle(order: Order) -> None:
        raise AlreadyDone

    bus.subscribe(Order, handle, success_on=[AlreadyDone])
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert entry.processing_state is State.PROCESSED


def test_every_other_exception_is_a_failure(bus: PersistentBus) -> None:
    recorder = Recorder(failures=99, error=ValueError("wrong"))
    bus.subscribe(Order, recorder, success_on=(LookupError,))
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, recorder.calls) == (State.FAILED, 4)


def test_only_the_subscriber_that_declared_it_succeeds(bus: PersistentBus) -> None:
    declared = Recorder(failures=99, error=AlreadyDone())
    other = Recorder(failures=1, error=AlreadyDone())
    bus.subscribe(Order, declared, name="declared", success_on=(AlreadyDone,))
    bus.subscribe(Order, other, name="other")
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, declared.calls, other.calls) == (State.PROCESSED, 1, 2)


@pytest.mark.parametrize("others", [0, 1])
def test_an_integrity_error_of_an_exactly_once_handler_is_its_success_with_nothing_written(
    bus: PersistentBus, orders: Orders, engine: Engine, others: int
) -> None:
    with engine.begin() as connection:
        connection.execute(orders.add(1))
    calls = list[int]()

    @bus.subscribe(Order, exactly_once=True, success_on=(IntegrityError,))
    def add(order: Order, context: ExactlyOnceContext) -> None:
        calls.append(order.number)
        context.connection.execute(orders.add(2))
        context.connection.execute(orders.add(1))

    recorders = [Recorder() for _ in range(others)]
    for number, recorder in enumerate(recorders):
        bus.subscribe(Order, recorder, name=f"other-{number}")
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.error_count, calls) == (State.PROCESSED, 0, [1])
    assert orders.numbers() == [1], "what the handler wrote before the error is rolled back"
    assert bus.find() == []


def test_a_notification_handler_declares_some_too(make_service: MakeService) -> None:
    service = make_service()
    recorder = Recorder(failures=99, error=AlreadyDone())
    queue = service.create_queue("shop", "reminders", recorder, success_on=(AlreadyDone,))
    queue.schedule({"customer": 41}, delay=0)
    decorated = Recorder(failures=99, error=AlreadyDone())
    service.queue("shop:bills", success_on=(AlreadyDone,))(decorated)
    service.get_queue("shop:bills").schedule({"customer": 41}, delay=0)
    assert [ran.state for ran in drain(service)] == [State.PROCESSED] * 2


def test_the_bus_in_memory_knows_them() -> None:
    bus = InMemoryBus()
    bus.subscribe(Order, Recorder(failures=99, error=AlreadyDone()), success_on=(AlreadyDone,))
    with bus:
        bus.post(Order(1))
        bus.wait_until_idle()
    assert [entry.processing_state for entry in bus.history()] == [State.PROCESSED]


@pytest.mark.parametrize(
    "wrong",
    [
        Exception,
        (Exception,),
        (BaseException,),
        (KeyboardInterrupt,),
        (int,),
        ("x",),
        "IntegrityError",
        5,
        None,
    ],
)
def test_what_can_not_be_declared_is_refused(bus: PersistentBus, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="success_on"):
        bus.subscribe(Order, Recorder(), success_on=cast("Any", wrong))
