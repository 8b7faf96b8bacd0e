"""What a handler may ask of its context: attempt, age, lateness and the size of its queue."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from bus.memory import InMemoryBus
from queue_core.model.answers import Retry
from queue_core.model.mode import Mode
from queue_core.model.retry_policies import ImmediateRetries
from queue_core.running.subscriber import EntryContext, ExactlyOnceContext
from queue_core.runtime.manual_clock import ManualClock
from stickybus.testing import drain
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Order, Recorder

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("exactly_once", [False, True])
def test_age_counts_from_the_creation_and_lateness_from_the_due_date(
    make_bus: MakeBus, *, exactly_once: bool
) -> None:
    clock = ManualClock(START)
    bus = make_bus(clock=clock, lease_seconds=1e6)
    contexts = list[EntryContext]()

    def handle(order: Order, context: EntryContext) -> Retry | None:
        contexts.append(context)
        return Retry(after=60) if context.attempt == 1 else None

    bus.subscribe(Order, handle, exactly_once=exactly_once)
    bus.post(Order(1), delay=30)
    clock.advance(seconds=40)
    drain(bus)
    clock.advance(seconds=65)
    drain(bus)
    facts = [(context.attempt, context.age, context.lateness) for context in contexts]
    assert facts == [
        (1, timedelta(seconds=40), timedelta(seconds=10)),
        (2, timedelta(seconds=105), timedelta(seconds=5)),
    ]


@pytest.mark.parametrize("kind", ["plain", "async", "exactly once"])
def test_the_queue_size_is_what_is_due_and_not_claimed(make_bus: MakeBus, kind: str) -> None:
    bus = make_bus(mode=Mode.POLLING, max_entries_claimed=1, queue_capacity=1)
    sizes = list[int]()

    def plain(order: Order, context: EntryContext) -> None:
        sizes.append(context.queue_size())

    async def in_thread(order: Order, context: EntryContext) -> None:
        sizes.append(await asyncio.to_thread(context.queue_size))

    def once(order: Order, context: ExactlyOnceContext) -> None:
        sizes.append(context.queue_size())

    match kind:
        case "plain":
            bus.subscribe(Order, plain)
        case "async":
            bus.subscribe(Order, in_thread)
        case _:
            bus.subscribe(Order, once, exactly_once=True)
    bus.post_many([Order(number) for number in range(3)])
    bus.post(Order(9), delay=3600)
    drain(bus)
    assert sizes == [2, 1, 0]


def test_the_queue_size_is_that_of_the_entrys_own_queue(make_service: MakeService) -> None:
    service = make_service(max_entries_claimed=1, queue_capacity=1)
    sizes = list[int]()

    def handle(event: object, context: EntryContext) -> None:
        sizes.append(context.queue_size())

    queue = service.create_queue("shop", "reminders", handle)
    other = service.create_queue("shop", "bills", Recorder())
    for _ in range(2):
        queue.schedule({}, delay=0)
    for _ in range(3):
        other.schedule({}, delay=0)
    drain(service)
    assert sizes == [1, 0]


def test_in_memory_it_is_what_waits() -> None:
    bus = InMemoryBus(handler_threads=1, retry=ImmediateRetries(0))
    sizes = list[int]()

    def handle(order: Order, context: EntryContext) -> None:
        sizes.append(context.queue_size())

    bus.subscribe(Order, handle)
    bus.post_many([Order(number) for number in range(3)])
    with bus:
        bus.wait_until_idle()
    assert sizes == [2, 1, 0]


def test_a_context_that_a_test_has_made_needs_none_of_it() -> None:
    context = EntryContext(
        record_id=1,
        queue_name="bus",
        class_name="Order",
        attempt=1,
        error_count=0,
        redispatch_count=0,
        search_key1=None,
        search_key2=None,
        user_token=None,
        future_user_token=None,
        headers={},
        created_date=START,
        effective_date=START,
    )
    assert (context.age, context.lateness, context.queue_size()) == (timedelta(), timedelta(), 0)
