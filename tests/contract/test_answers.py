"""What a handler returns: an answer, or anything else, which means success."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bus.memory import InMemoryBus
from bus.persistent import PersistentBus
from queue_core.model.answers import Fail, Retry
from queue_core.model.entry import Entry
from queue_core.model.retry_policies import ImmediateRetries
from queue_core.model.states import State
from queue_core.running.subscriber import EntryContext, ExactlyOnceContext
from queue_core.runtime.manual_clock import ManualClock
from stickybus.testing import drain
from tests.contract.conftest import MakeBus, MakeService, Orders
from tests.contract.harness import Order, ended

START = datetime(2026, 1, 1, tzinfo=UTC)


def _subscribe(bus: PersistentBus | InMemoryBus, kind: str, answers: list[Any]) -> list[int]:
    """Subscribe a handler that gives one answer after the other; the numbers that it gets."""
    calls = list[int]()

    def answer(order: Order) -> Any:
        calls.append(order.number)
        return answers[min(len(calls), len(answers)) - 1]

    async def answer_async(order: Order) -> Any:
        return answer(order)

    def answer_once(order: Order, context: ExactlyOnceContext) -> Any:
        return answer(order)

    match kind:
        case "async":
            bus.subscribe(Order, answer_async)
        case "exactly once":
            bus.subscribe(Order, answer_once, exactly_once=True)
        case _:
            bus.subscribe(Order, answer, serial=kind == "serial")
    return calls


KINDS = pytest.mark.parametrize("kind", ["plain", "serial", "async", "exactly once"])


@KINDS
def test_fail_ends_the_entry_at_once_with_the_reason(bus: PersistentBus, kind: str) -> None:
    calls = _subscribe(bus, kind, [Fail("the account is closed")])
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.error_count) == (State.FAILED, 1)
    assert entry.last_error == "Fail: the account is closed"
    assert calls == [1]


@KINDS
def test_retry_without_a_delay_is_a_failure_for_the_policy(bus: PersistentBus, kind: str) -> None:
    calls = _subscribe(bus, kind, [Retry(reason="not yet")])
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.error_count, len(calls)) == (State.FAILED, 4, 4)
    assert entry.last_error == "Retry: not yet"


@KINDS
def test_retry_with_a_delay_runs_then_and_is_not_bounded_by_the_policy(
    make_bus: MakeBus, kind: str
) -> None:
    clock = ManualClock(START)
    bus = make_bus(clock=clock, retry=ImmediateRetries(0), lease_seconds=1e6)
    later = Retry(after=timedelta(minutes=2))
    calls = _subscribe(bus, kind, [later, later, None])
    bus.post(Order(1))
    for expected in (1, 2):
        (ran,) = drain(bus)
        assert (ran.error_count, ran.retry_at) == (expected, clock.now() + timedelta(minutes=2))
        clock.advance(seconds=120)
    (ran,) = drain(bus)
    assert (ran.state, len(calls)) == (State.PROCESSED, 3)


@KINDS
@pytest.mark.parametrize("returned", [None, 0, False, "Fail", ValueError("a value"), Fail])
def test_everything_else_that_is_returned_means_success(
    bus: PersistentBus, kind: str, returned: object
) -> None:
    calls = _subscribe(bus, kind, [returned])
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.error_count, calls) == (State.PROCESSED, 0, [1])


def test_a_coroutine_that_a_plain_handler_returns_is_awaited(make_bus: MakeBus) -> None:
    bus, called = make_bus(), list[int]()

    async def fails_once(order: Order) -> Retry | str:
        called.append(order.number)
        return Retry() if len(called) == 1 else "done"

    def around(order: Order) -> Any:
        return fails_once(order)

    bus.subscribe(Order, around, name="around")
    bus.post(Order(1))
    first, second = drain(bus)
    assert (first.error_count, second.state, second.returned) == (
        1,
        State.PROCESSED,
        {"around": "done"},
    )
    assert called == [1, 1]


def test_a_body_that_nobody_runs_is_a_failure(make_bus: MakeBus) -> None:
    bus = make_bus(retry=ImmediateRetries(0))

    def numbers(order: Order) -> Iterator[int]:
        yield order.number

    async def later(order: Order) -> None:
        raise AssertionError(order)

    def generator(order: Order) -> Iterator[int]:
        return numbers(order)

    def coroutine(order: Order, _context: EntryContext) -> Any:
        return later(order)

    bus.subscribe(Order, generator)
    bus.subscribe("Once", coroutine, exactly_once=True)
    bus.post(Order(1))
    bus.post({}, event_name="Once")
    first, second = drain(bus)
    assert (first.state, second.state) == (State.FAILED, State.FAILED)
    assert "numbers" in (first.last_error or "")
    assert "later" in (second.last_error or "")


def test_fail_of_one_subscriber_leaves_the_others_their_runs(bus: PersistentBus) -> None:
    _subscribe(bus, "plain", [Fail("hopeless")])
    others = _subscribe_named(bus, "other", [Retry(), Retry(), None])
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, len(others)) == (State.FAILED, 3)


def _subscribe_named(bus: PersistentBus, name: str, answers: list[Any]) -> list[int]:
    calls = list[int]()

    def answer(order: Order) -> Any:
        calls.append(order.number)
        return answers[len(calls) - 1]

    bus.subscribe(Order, answer, name=name)
    return calls


def test_what_an_exactly_once_handler_wrote_is_rolled_back_with_its_answer(
    bus: PersistentBus, orders: Orders
) -> None:
    answers = [Retry(), None]

    @bus.subscribe(Order, exactly_once=True)
    def add(order: Order, context: ExactlyOnceContext) -> Retry | None:
        context.connection.execute(orders.add(len(answers)))
        return answers.pop(0)

    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.error_count) == (State.PROCESSED, 1)
    assert orders.numbers() == [1]


def test_a_notification_handler_answers_too(make_service: MakeService) -> None:
    service = make_service()
    queue = service.create_queue("shop", "reminders", lambda _: Fail("no such customer"))
    queue.schedule({"customer": 41}, event_name="reminder", delay=0)
    (ran,) = drain(service)
    assert (ran.state, ran.last_error) == (State.FAILED, "Fail: no such customer")


@pytest.mark.parametrize("kind", ["plain", "serial", "async"])
def test_the_bus_in_memory_heeds_answers(kind: str) -> None:
    bus = InMemoryBus(retry=ImmediateRetries(0))
    calls = _subscribe(bus, kind, [Retry(after=3600), Fail("enough")])
    with bus:
        bus.post(Order(1))
        bus.wait_until_idle()
    (entry,) = bus.history()
    assert (entry.processing_state, entry.last_error) == (State.FAILED, "Fail: enough")
    assert len(calls) == 2


def test_hooks_and_logs_name_the_answer(
    bus: PersistentBus, caplog: pytest.LogCaptureFixture
) -> None:
    told = list[tuple[Entry, str]]()
    bus.on_failed(lambda entry, last_error: told.append((entry, last_error)))
    _subscribe(bus, "plain", [Fail("card 4711")])
    bus.start()
    bus.post(Order(1))
    ended(bus)
    bus.stop()
    assert [last_error for _, last_error in told] == ["Fail: card 4711"]
    failed = [text for text in caplog.messages if "failed" in text]
    assert any("error_type=Fail" in text for text in failed)
    assert not any("4711" in text for text in failed), "a reason may quote a payload"
