"""The test kit: one entry at a time, second runs, start and stop without threads, contents."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import timedelta

import pytest

from stickybus import (
    ConfigurationError,
    EntryNotFoundError,
    ExactlyOnceContext,
    LifecycleError,
    ManualClock,
    ScheduledRetries,
    State,
)
from stickybus.testing import (
    clear,
    consume_one,
    drain,
    run_again,
    waiting_events,
    without_threads,
)
from tests.contract.conftest import MakeBus, MakeService, Orders


@dataclass(frozen=True)
class InvoicePosted:
    number: int


@dataclass(frozen=True)
class InvoicePaid:
    number: int


def test_one_entry_is_consumed_and_its_handlers_value_returned(make_bus: MakeBus) -> None:
    bus = make_bus(clock=ManualClock())

    @bus.subscribe(InvoicePosted)
    def pay(event: InvoicePosted) -> str:
        bus.post(InvoicePaid(event.number))
        return f"invoice {event.number}"

    @bus.subscribe(InvoicePaid)
    async def book(event: InvoicePaid) -> int:
        return event.number

    record_id = bus.post(InvoicePosted(41))
    ran = consume_one(bus)
    assert (ran.entry.record_id, ran.state, ran.value) == (
        record_id,
        State.PROCESSED,
        "invoice 41",
    )
    assert waiting_events(bus) == [InvoicePaid(41)]
    assert consume_one(bus).value == 41
    assert waiting_events(bus) == []


def test_none_several_and_a_failed_one_are_no_one(make_bus: MakeBus) -> None:
    bus = make_bus(clock=ManualClock(), retry=ScheduledRetries((timedelta(minutes=5),)))

    @bus.subscribe(InvoicePosted)
    def pay(event: InvoicePosted) -> None:
        if event.number < 0:
            raise ValueError(f"no invoice {event.number}")

    with pytest.raises(AssertionError, match="0 entries were due, not 1: none"):
        consume_one(bus)
    bus.post_many([InvoicePosted(1), InvoicePosted(2)])
    with pytest.raises(AssertionError, match=r"2 entries were due, not 1: \d+ \(InvoicePosted\)"):
        consume_one(bus)
    bus.post(InvoicePosted(-1))
    with pytest.raises(AssertionError, match="is AVAILABLE, not PROCESSED: ValueError") as caught:
        consume_one(bus)
    assert isinstance(caught.value.__cause__, ValueError)
    bus.post({}, event_name="Unknown")
    with pytest.raises(AssertionError, match="is parked"):
        consume_one(bus)


def test_a_run_keeps_what_each_handler_returned_and_raised(make_bus: MakeBus) -> None:
    bus = make_bus(clock=ManualClock(), retry=ScheduledRetries((timedelta(minutes=5),)))
    error = ValueError("busy")

    def fail(_event: InvoicePosted) -> None:
        raise error

    bus.subscribe(InvoicePosted, fail, name="fail")
    bus.subscribe(InvoicePosted, lambda event: event.number, name="number")
    bus.subscribe(InvoicePosted, lambda event: -event.number, name="negative")
    bus.post(InvoicePosted(1))
    (ran,) = drain(bus)
    assert ran.returned == {"number": 1, "negative": -1}
    assert ran.raised == {"fail": error}
    with pytest.raises(AssertionError, match="2 handlers returned, not 1: number, negative"):
        _ = ran.value


def test_a_notification_is_consumed(make_service: MakeService) -> None:
    clock = ManualClock()
    service = make_service(clock=clock)
    queue = service.create_queue("shop", "reminders", lambda event: event["text"])
    queue.schedule({"text": "due"}, delay=60)
    assert waiting_events(service) == [{"text": "due"}]
    clock.advance(seconds=60)
    assert consume_one(service).value == "due"


def test_a_second_run_finds_a_handler_that_is_not_idempotent(make_bus: MakeBus) -> None:
    bus, sent, seen = make_bus(clock=ManualClock()), list[int](), set[int]()
    bus.subscribe(InvoicePosted, lambda event: sent.append(event.number), name="mail")
    bus.subscribe(InvoicePosted, lambda event: seen.add(event.number), name="mark")
    bus.post(InvoicePosted(41), search_key1=7)
    (first,) = drain(bus)
    second = run_again(bus, first)
    assert (second.state, second.entry.replay_of) == (State.PROCESSED, first.entry.record_id)
    assert second.entry.search_key1 == 7
    assert (sent, seen) == ([41, 41], {41})
    third = run_again(bus, first.entry.record_id)
    assert third.entry.record_id != second.entry.record_id
    assert drain(bus) == []


def test_a_second_run_leaves_out_what_an_exactly_once_handler_has_recorded(
    make_bus: MakeBus, orders: Orders
) -> None:
    bus, plain = make_bus(clock=ManualClock()), list[int]()

    def write(event: InvoicePosted, context: ExactlyOnceContext) -> None:
        context.connection.execute(orders.add(event.number))

    bus.subscribe(InvoicePosted, write, name="write", exactly_once=True)
    bus.subscribe(InvoicePosted, lambda event: plain.append(event.number), name="plain")
    bus.post(InvoicePosted(41))
    first = consume_one(bus)
    assert run_again(bus, first).state is State.PROCESSED
    assert (orders.numbers(), plain) == ([41], [41, 41])


def test_a_second_run_needs_an_entry_in_history(make_bus: MakeBus) -> None:
    bus = make_bus(clock=ManualClock())
    record_id = bus.post(InvoicePosted(41), delay=60)
    with pytest.raises(EntryNotFoundError, match="Nothing ran"):
        run_again(bus, record_id)


def test_start_and_stop_do_nothing_and_start_no_thread(make_bus: MakeBus) -> None:
    bus = make_bus(clock=ManualClock())
    bus.subscribe(InvoicePosted, lambda event: event.number, name="number")
    before = set(threading.enumerate())
    with without_threads(bus):
        assert bus.start() is bus
        bus.post(InvoicePosted(41))
        assert consume_one(bus).value == 41
        assert bus.stop(0.0) is True
        bus.start()
        assert {
            thread for thread in set(threading.enumerate()) - before if "notify" not in thread.name
        } == set()
    bus.start()
    with pytest.raises(LifecycleError, match="it is started"), without_threads(bus):
        pass
    assert bus.stop()


def test_clear_leaves_nothing_of_the_targets(make_bus: MakeBus, make_service: MakeService) -> None:
    bus, other = make_bus(), make_bus(name="other")
    service = make_service()
    queue = service.create_queue("shop", "reminders", lambda event: event)
    bus.subscribe(InvoicePosted, lambda event: event.number, name="number")
    bus.post(InvoicePosted(1))
    drain(bus)
    bus.post_many([InvoicePosted(2), InvoicePosted(3)])
    other.post(InvoicePosted(4))
    queue.schedule({}, delay=60)
    assert clear(bus, service) == 3
    assert [bus.find(), bus.history(), queue.find(), queue.history()] == [[], [], [], []]
    assert len(other.find()) == 1


def test_targets_are_checked(make_bus: MakeBus) -> None:
    for call in (consume_one, waiting_events, clear):
        with pytest.raises(ConfigurationError, match="target"):
            call("bus")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="target"):
        run_again("bus", 1)  # type: ignore[arg-type]
    bus = make_bus().start()
    for refused in (lambda: consume_one(bus), lambda: clear(bus), lambda: run_again(bus, 1)):
        with pytest.raises(LifecycleError, match="it is started"):
            refused()
