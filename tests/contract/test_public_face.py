"""The calls of users: subscriptions, posts with a date, named events, states, old names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pytest

from stickybus import (
    BusConfig,
    ConfigurationError,
    EntryContext,
    ExactlyOnceContext,
    InMemoryBus,
    InvalidPostError,
    ManualClock,
    NaiveDateTimeError,
    NotificationConfig,
    NotificationQueue,
    NotificationService,
    PersistentBus,
    QueueExistsError,
    State,
)
from stickybus.testing import (
    drain,
    stickybus_bus,
    stickybus_clock,
    stickybus_service,
)
from tests.contract.harness import Order, Recorder

__all__ = ["stickybus_bus", "stickybus_clock", "stickybus_service"]


@dataclass
class Invoice:
    number: int


@dataclass(frozen=True)
class UrgentOrder(Order):
    pass


class Numbered(Protocol):
    number: int


def of_order(_order: Order) -> None: ...


def of_invoice(_invoice: Invoice) -> None: ...


def of_either(_event: Order | Invoice) -> None: ...


def of_anything(_event: Any) -> None: ...


def of_object(_event: object) -> None: ...


def of_a_protocol(_event: Numbered) -> None: ...


def of_nothing_said(_event, _context: EntryContext) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001


def of_a_dict(_event: dict[str, int]) -> None: ...


def of_number(_event: int | None) -> None: ...


def of_the_unknown(_event: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


class Callback:
    def __call__(self, invoice: Invoice) -> None: ...

    def method(self, invoice: Invoice) -> None: ...


# -- subscribe -----------------------------------------------------------------------------------


def test_subscribe_is_a_decorator_and_a_call(stickybus_bus: PersistentBus) -> None:
    by_call, by_decorator = Recorder(), Recorder()
    stickybus_bus.subscribe(Order, by_call, name="call")

    @stickybus_bus.subscribe(Order, name="decorator")
    def decorated(order: Order) -> None:
        by_decorator.events.append(order)

    assert callable(decorated)
    stickybus_bus.post(Order(1))
    drain(stickybus_bus)
    assert by_call.events == by_decorator.events == [Order(1)]


def test_who_has_unsubscribed_gets_nothing(stickybus_bus: PersistentBus) -> None:
    recorder = Recorder()
    stickybus_bus.subscribe(Order, recorder)
    assert stickybus_bus.unsubscribe(recorder)
    assert not stickybus_bus.unsubscribe(recorder)
    stickybus_bus.post(Order(1))
    drain(stickybus_bus)
    assert recorder.events == []


@pytest.mark.parametrize(
    "kind", [PersistentBus, InMemoryBus, NotificationService, NotificationQueue]
)
def test_nothing_of_the_engine_is_public(
    stickybus_bus: PersistentBus, stickybus_service: NotificationService, kind: type
) -> None:
    queue = stickybus_service.create_queue("shop", "reminders", of_order)
    [one] = [
        one for one in (stickybus_bus, InMemoryBus(), stickybus_service, queue) if type(one) is kind
    ]
    public = {name: getattr(one, name) for name in vars(one) if not name.startswith("_")}
    assert all(
        isinstance(value, (str, BusConfig, NotificationConfig)) for value in public.values()
    ), public


@pytest.mark.parametrize(
    "handler",
    [of_invoice, of_a_dict, of_number, Callback(), Callback().method],
    ids=["class", "dict", "number", "object", "method"],
)
def test_a_handler_whose_annotation_excludes_its_event_is_refused(
    stickybus_bus: PersistentBus,
    stickybus_service: NotificationService,
    handler: Callable[..., None],
) -> None:
    with pytest.raises(ConfigurationError, match=r"(Invoice|dict|int).*harness\.Order"):
        stickybus_bus.subscribe(Order, handler)
    with pytest.raises(ConfigurationError, match=r"(Invoice|dict|int).*harness\.Order"):
        stickybus_service.create_queue("shop", "orders", handler, event_types=[Order])
    assert stickybus_service.queues() == []


@pytest.mark.parametrize(
    "handler",
    [
        *(
            of_order,
            of_either,
            of_anything,
            of_object,
            of_a_protocol,
            of_nothing_said,
            of_the_unknown,
        ),
        (lambda _event: None),
    ],
)
@pytest.mark.parametrize("event", [Order, UrgentOrder])
def test_a_handler_whose_annotation_may_fit_is_taken(
    stickybus_bus: PersistentBus, handler: Callable[..., None], event: type
) -> None:
    stickybus_bus.subscribe(event, handler)


def test_a_queue_whose_handler_annotates_the_context_alone_takes_all_events(
    stickybus_service: NotificationService,
) -> None:
    taken = list[object]()

    def handle(event, context: EntryContext) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        taken.append((event, context.attempt))

    queue = stickybus_service.create_queue("shop", "reminders", handle)
    queue.schedule({"number": 1}, delay=0)
    drain(stickybus_service)
    assert taken == [({"number": 1}, 1)]


def test_an_exactly_once_handler_gets_a_context_with_a_connection(
    stickybus_bus: PersistentBus,
) -> None:
    kinds = list[type[EntryContext]]()

    @stickybus_bus.subscribe(Order, exactly_once=True)
    def book(_order: Order, context: ExactlyOnceContext) -> None:
        assert not context.connection.closed
        kinds.append(type(context))

    @stickybus_bus.subscribe(Order)
    def confirm(_order: Order, context: EntryContext) -> None:
        assert context.connection is None
        kinds.append(type(context))

    stickybus_bus.post(Order(1))
    drain(stickybus_bus)
    assert {kind.__name__ for kind in kinds} == {"ExactlyOnceContext", "EntryContext"}


# -- events by name ------------------------------------------------------------------------------


def test_an_event_type_has_the_name_that_it_was_registered_under(
    stickybus_bus: PersistentBus,
) -> None:
    assert stickybus_bus.register_event(Invoice, name="billing.invoice") == "billing.invoice"
    stickybus_bus.post(Invoice(1))
    [entry] = stickybus_bus.find()
    assert entry.class_name == "billing.invoice"


def test_two_types_of_one_name_are_told_apart_as_the_error_says(
    stickybus_bus: PersistentBus,
) -> None:
    @dataclass
    class Order:
        number: int

    stickybus_bus.subscribe(Invoice, of_invoice)
    stickybus_bus.register_event(Order)
    with pytest.raises(ConfigurationError, match=r"bus\.register_event\(event_type, name=…\)"):
        stickybus_bus.post(_harness_order())
    stickybus_bus.register_event(type(_harness_order()), name="other.order")
    stickybus_bus.post(_harness_order())
    assert [entry.class_name for entry in stickybus_bus.find()] == ["other.order"]


def _harness_order() -> Order:
    return Order(1)


# -- dates ---------------------------------------------------------------------------------------


def test_a_post_with_a_delay_or_a_date_runs_then(
    stickybus_bus: PersistentBus, stickybus_clock: ManualClock
) -> None:
    recorder = Recorder()
    stickybus_bus.subscribe(Order, recorder)
    stickybus_bus.post(Order(1), delay=60)
    stickybus_bus.post(Order(2), delay=timedelta(seconds=120))
    stickybus_bus.post(Order(3), at=stickybus_clock.now() + timedelta(seconds=180))
    stickybus_bus.post(Order(0), at=stickybus_clock.now() - timedelta(days=1))
    for expected in ([0], [0, 1], [0, 1, 2], [0, 1, 2, 3]):
        drain(stickybus_bus)
        assert recorder.numbers() == expected
        stickybus_clock.advance(seconds=60)


@pytest.mark.parametrize("memory", [False, True])
def test_a_date_that_can_not_be_one_is_refused(stickybus_bus: PersistentBus, memory: bool) -> None:  # noqa: FBT001
    bus = InMemoryBus() if memory else stickybus_bus
    with pytest.raises(InvalidPostError, match=r"either at=… .* or delay"):
        bus.post(Order(1), at=datetime.now(UTC), delay=1)
    wrong: list[Any] = [float("inf"), float("nan"), -0.001, timedelta(days=-1)]
    for delay in [*wrong, "5", "", b"5", True, False, []]:
        with pytest.raises(InvalidPostError, match="gives no date"):
            bus.post(Order(1), delay=delay)
    with pytest.raises(NaiveDateTimeError):
        bus.post(Order(1), at=datetime(2026, 1, 1))  # noqa: DTZ001 -- naive on purpose
    assert bus.find() == []


@pytest.mark.parametrize("seconds", [-1, -0.001, float("-inf")])
def test_a_negative_wait_is_refused(stickybus_bus: PersistentBus, seconds: float) -> None:
    bus, feed = InMemoryBus(), stickybus_bus.listen("watcher")
    waits: list[Callable[[], Any]] = [
        lambda: stickybus_bus.stop(seconds),
        lambda: stickybus_bus.retry_and_wait(1, timeout_seconds=seconds),
        lambda: bus.stop(seconds),
        lambda: bus.wait_until_idle(seconds),
        lambda: feed.get(seconds),
    ]
    for wait in waits:
        with pytest.raises(ConfigurationError, match="0 or more") as refused:
            wait()
        assert refused.value.key == "timeout_seconds"


def test_a_node_that_runs_starts_a_delayed_event_at_its_date(stickybus_url: str) -> None:
    bus, recorder = PersistentBus(stickybus_url), Recorder()
    bus.subscribe(Order, recorder)
    with bus:
        bus.post(Order(1), delay=0.2)
        assert recorder.wait() == [Order(1)]


# -- states --------------------------------------------------------------------------------------


def test_a_lone_state_is_taken_as_one(stickybus_bus: PersistentBus) -> None:
    stickybus_bus.post(Order(1))
    for states in (State.AVAILABLE, "AVAILABLE", ["AVAILABLE"], {State.AVAILABLE}):
        assert len(stickybus_bus.find(states=states)) == 1  # type: ignore[arg-type]
    assert stickybus_bus.find(states=State.IN_PROCESSING) == []
    assert stickybus_bus.truncate_history(states="PROCESSED") == 0
    with pytest.raises(InvalidPostError, match=r"states='AVAIL'.*AVAILABLE"):
        stickybus_bus.find(states="AVAIL")  # type: ignore[arg-type]


# -- queues --------------------------------------------------------------------------------------


def test_a_queue_is_created_by_decorating_its_handler(
    stickybus_service: NotificationService,
) -> None:
    reminded = list[Order]()

    @stickybus_service.queue("shop:reminders", serial=True)
    def remind(order: Order) -> None:
        reminded.append(order)

    remind(Order(0))
    queue = stickybus_service.get_queue("shop:reminders")
    assert queue is stickybus_service.get_queue("shop", "reminders")
    queue.schedule(Order(1), delay=0)
    drain(stickybus_service)
    assert reminded == [Order(0), Order(1)]
    with pytest.raises(QueueExistsError):
        stickybus_service.queue("shop:reminders")(remind)


@pytest.mark.parametrize("name", ["shop", "a:b:c", ":", "", 5])
def test_a_name_that_is_no_queues_is_refused_before_it_decorates(
    stickybus_service: NotificationService, name: Any
) -> None:
    with pytest.raises(InvalidPostError):
        stickybus_service.queue(name)(of_order)
    assert stickybus_service.queues() == []
