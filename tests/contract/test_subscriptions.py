"""Subscribers: by type or name, serial or concurrent, plain functions or coroutines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import URL

from bus.persistent import PersistentBus
from queue_core.errors import ConfigurationError
from queue_core.model.config import BusConfig
from queue_core.model.retry_policies import ExponentialRetries
from queue_core.model.states import State
from queue_core.running.subscriber import EntryContext
from tests.contract.conftest import MakeBus
from tests.contract.harness import BOUND_SECONDS, Order, Recorder, ended, eventually, states


@dataclass(frozen=True)
class RushOrder(Order):
    by: str


@dataclass(frozen=True)
class NightOrder(RushOrder):
    """A subtype of a subtype."""


def test_a_subscriber_of_a_type_gets_its_subtypes_as_what_they_are(bus: PersistentBus) -> None:
    orders, rushed = Recorder(), Recorder()
    bus.subscribe(Order, orders, name="orders")
    bus.subscribe(RushOrder, rushed, name="rushed")
    bus.start()
    bus.post_many([Order(1), RushOrder(2, "bike"), NightOrder(3, "owl")])
    ended(bus, 3)
    assert sorted(orders.events, key=lambda order: order.number) == [
        Order(1),
        RushOrder(2, "bike"),
        NightOrder(3, "owl"),
    ]
    assert rushed.numbers() == [2, 3]


def test_a_subtype_posted_by_another_process_is_known_by_its_registered_base(
    make_bus: MakeBus,
) -> None:
    make_bus().post(NightOrder(1, "owl"))
    bus, recorder = make_bus(), Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    assert recorder.wait() == [NightOrder(1, "owl")]


def test_a_retry_runs_only_the_subscriber_that_failed(bus: PersistentBus) -> None:
    steady, failing, other = Recorder(), Recorder(failures=2), Recorder()
    bus.subscribe(Order, steady, name="steady")
    bus.subscribe(Order, failing, name="failing")
    bus.subscribe(Order, other, name="other")
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (steady.calls, failing.calls, other.calls) == (1, 3, 1)
    assert (entry.processing_state, entry.error_count) == (State.PROCESSED, 2)


def test_one_subscriber_that_gives_out_fails_the_entry_and_not_the_others_work(
    bus: PersistentBus,
) -> None:
    steady, failing = Recorder(), Recorder(failures=99)
    bus.subscribe(Order, failing, name="failing")
    bus.subscribe(Order, steady, name="steady")
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (steady.calls, failing.calls) == (1, 4)
    assert entry.processing_state is State.FAILED
    assert entry.progress == {"steady": True, "failing": False}


def test_concurrent_handlers_run_side_by_side(make_bus: MakeBus) -> None:
    bus, recorder = make_bus(handler_threads=3), Recorder(hold=True)
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post_many([Order(1), Order(2), Order(3)])
    recorder.wait(3)
    assert recorder.most_running == 3
    recorder.release()
    ended(bus, 3)


def test_a_serial_handler_runs_one_call_at_a_time_in_order_and_holds_no_thread_meanwhile(
    make_bus: MakeBus,
) -> None:
    bus = make_bus(handler_threads=2)
    serial, other = Recorder(hold=True), Recorder()
    bus.subscribe(Order, serial, name="serial", serial=True)
    bus.subscribe("other", other, name="other")
    bus.start()
    bus.post_many(Order(number) for number in range(5))
    serial.wait(1)
    bus.post({}, event_name="other")
    # The second thread came to it, past four orders that it could not run.
    other.wait(1)
    assert serial.calls == 1
    serial.release()
    ended(bus, 6)
    assert serial.most_running == 1
    assert [order.number for order in serial.events] == list(range(5))


def test_a_serial_handler_that_fails_gives_its_turn_on(make_bus: MakeBus) -> None:
    bus, recorder = make_bus(), Recorder(failures=3)
    bus.subscribe(Order, recorder, serial=True)
    bus.start()
    bus.post_many(Order(number) for number in range(3))
    assert states(ended(bus, 3)) == [State.PROCESSED] * 3
    assert recorder.calls == 6
    assert recorder.most_running == 1


def test_coroutine_handlers_meet_on_one_event_loop(make_bus: MakeBus) -> None:
    bus, arrived = make_bus(handler_threads=2), list[int]()
    loops = set[asyncio.AbstractEventLoop]()
    both = asyncio.Event()

    @bus.subscribe(Order)
    async def meet(order: Order, context: EntryContext) -> None:
        assert context.class_name == "Order"
        loops.add(asyncio.get_running_loop())
        arrived.append(order.number)
        if len(arrived) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), BOUND_SECONDS)

    bus.start()
    bus.post_many([Order(1), Order(2)])
    assert states(ended(bus, 2)) == [State.PROCESSED] * 2
    assert len(loops) == 1


def test_a_coroutine_handler_that_raises_is_retried(bus: PersistentBus) -> None:
    calls = list[int]()

    @bus.subscribe(Order)
    async def fail_twice(order: Order) -> None:
        calls.append(order.number)
        if len(calls) < 3:
            raise SystemExit(7)

    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (calls, entry.error_count, entry.processing_state) == ([1, 1, 1], 2, State.PROCESSED)


def test_callable_objects_methods_and_lambdas_are_handlers(bus: PersistentBus) -> None:
    class Counter:
        def __init__(self) -> None:
            self.seen = list[int]()

        def count(self, order: Order) -> None:
            self.seen.append(order.number)

        async def __call__(self, order: Order, context: EntryContext) -> str:
            self.seen.append(-order.number)
            return "what a handler returns means nothing"

    counter, seen = Counter(), list[int]()
    bus.subscribe(Order, counter.count)
    bus.subscribe(Order, counter)
    bus.subscribe(Order, lambda order: seen.append(order.number), name="lambda")
    bus.start()
    bus.post(Order(1))
    ended(bus)
    assert (sorted(counter.seen), seen) == ([-1, 1], [1])
    assert bus.unsubscribe(counter.count)


def test_an_unregistered_handler_gets_nothing_more_and_its_events_end_processed(
    database_url: URL,
) -> None:
    registry, recorder = CollectorRegistry(), Recorder()
    with PersistentBus(
        database_url, BusConfig(handler_threads=1), metrics_registry=registry
    ) as bus:
        bus.subscribe(Order, recorder)
        bus.post(Order(1))
        ended(bus, 1)
        assert bus.unsubscribe(recorder)
        assert not bus.unsubscribe(recorder)
        bus.post(Order(2))
        assert states(ended(bus, 2)) == [State.PROCESSED] * 2
        assert recorder.events == [Order(1)]
        labels = {"table": "bus_events", "queue_name": "bus"}
        eventually(
            lambda: registry.get_sample_value("stickybus_entries_undelivered_total", labels) == 1,
            "the event that nobody wanted is counted",
        )


def test_an_event_that_nobody_handles_is_warned_of_once_for_its_name(
    bus: PersistentBus, caplog: pytest.LogCaptureFixture
) -> None:
    with bus:
        bus.post_many([Order(1), Order(2)])
        ended(bus, 2)
    warned = [record for record in caplog.messages if record.startswith("nobody_subscribes")]
    assert len(warned) == 1
    assert "class_name=Order" in warned[0]


def test_a_decorator_without_its_event_is_refused(bus: PersistentBus) -> None:
    with pytest.raises(ConfigurationError, match=r"@bus\.subscribe\(OrderPlaced\)") as refused:
        bus.subscribe(Recorder())  # type: ignore[call-overload]
    assert refused.value.key == "event"


def test_a_handler_registered_while_the_bus_runs_gets_the_next_event(bus: PersistentBus) -> None:
    bus.start()
    recorder = Recorder()
    bus.subscribe(Order, recorder)
    bus.post(Order(1))
    assert recorder.wait() == [Order(1)]


def test_one_handler_subscribed_to_a_type_and_its_subtype_is_called_once(
    bus: PersistentBus,
) -> None:
    recorder = Recorder()
    bus.subscribe(Order, recorder)
    bus.subscribe(RushOrder, recorder)
    bus.start()
    bus.post(RushOrder(1, "bike"))
    ended(bus)
    assert recorder.calls == 1


def _fail(_order: Order) -> None:
    raise RuntimeError


def test_a_handler_is_known_by_its_module_and_its_qualified_name(bus: PersistentBus) -> None:
    bus.subscribe(Order, _fail, retry=ExponentialRetries(initial_seconds=600, jitter=0))
    bus.subscribe(Order, Recorder(), name="other")
    bus.start()
    record_id = bus.post(Order(1))

    def known() -> list[object]:
        return [reason.facts.get("subscriber") for reason in bus.explain(record_id).reasons]

    eventually(lambda: known() == [f"{__name__}._fail"], "the handler that has failed is named")


def test_two_handlers_of_one_name_are_refused(bus: PersistentBus) -> None:
    bus.subscribe(Order, Recorder())
    with pytest.raises(ConfigurationError, match="name=") as refused:
        bus.subscribe(Order, Recorder())
    assert refused.value.key == "name"


def _yields(order: Order) -> Iterator[int]:
    yield order.number


async def _yields_later(order: Order) -> AsyncIterator[int]:
    yield order.number


@pytest.mark.parametrize(
    "handler",
    [
        pytest.param(lambda: None, id="no argument"),
        pytest.param(lambda _event, _context, _more: None, id="three"),
        pytest.param("not callable", id="text"),
        pytest.param(_yields, id="generator"),
        pytest.param(_yields_later, id="asynchronous generator"),
    ],
)
def test_what_can_not_be_called_with_an_event_is_refused(
    bus: PersistentBus, handler: object
) -> None:
    with pytest.raises(ConfigurationError):
        bus.subscribe(Order, handler, name="odd")  # type: ignore[call-overload]


def test_a_handler_that_ends_its_thread_has_failed_and_the_pool_goes_on(make_bus: MakeBus) -> None:
    bus = make_bus(handler_threads=1)
    recorder = Recorder(failures=4, error=SystemExit("out"))
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus, 1)
    assert (entry.processing_state, recorder.calls) == (State.FAILED, 4)
    assert (entry.last_error or "").startswith("SystemExit: out")
    bus.post(Order(2))
    assert states(ended(bus, 2)) == [State.FAILED, State.PROCESSED]


def test_a_payload_that_does_not_fit_its_type_fails_with_the_reason_and_its_bytes_kept(
    bus: PersistentBus,
) -> None:
    bus.post({"number": "not a number"}, event_name="Order")
    recorder = Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    (entry,) = ended(bus)
    assert (entry.processing_state, recorder.calls) == (State.FAILED, 0)
    assert "PayloadNotDecodableError" in (entry.last_error or "")
    assert entry.event_json == '{"number":"not a number"}'


def test_handlers_of_two_buses_run_in_threads_of_their_own(make_bus: MakeBus) -> None:
    first, second, threads = make_bus(name="first"), make_bus(name="second"), set[str]()
    for bus in (first, second):
        bus.subscribe(
            Order, lambda _order: threads.add(threading.current_thread().name), name="note"
        )
        bus.start()
        bus.post(Order(1))
        ended(bus)
    assert threads
    assert threading.current_thread().name not in threads
