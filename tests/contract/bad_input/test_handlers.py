"""Handlers, retry policies and hooks that misbehave."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from bus.persistent import PersistentBus
from queue_core.errors import ConfigurationError
from queue_core.finishing.unwritten_outcomes import BATCH
from queue_core.model.entry import Entry
from queue_core.model.outcome import Outcome
from queue_core.model.retry import Failure, GiveUp
from queue_core.model.retry_policies import ImmediateRetries
from queue_core.model.states import State
from queue_core.running.subscriber import EntryContext
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import (
    BOUND_SECONDS,
    Order,
    Recorder,
    ended,
    engine_of,
    eventually,
    lifecycle_of,
    states,
)


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
    router = engine_of(bus).router
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
    vars(lifecycle_of(bus).finisher)["write_all"] = broken

    assert not bus.stop()
    assert lifecycle_of(bus).node is None


@pytest.mark.parametrize(
    "answer",
    [
        RuntimeError("no rule"),
        SystemExit("no rule"),
        KeyboardInterrupt(),
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


def test_a_retry_policy_that_raises_leaves_another_subscriber_its_retries(
    bus: PersistentBus,
) -> None:
    other = Recorder(failures=1)
    bus.subscribe(Order, Recorder(failures=1), retry=_Policy(SystemExit("no rule")), name="one")
    bus.subscribe(Order, other, retry=ImmediateRetries(1), name="other")
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert entry.progress == {"one": False, "other": True}
    assert len(other.numbers()) == 2


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
    outcomes = lifecycle_of(bus).finisher
    last = threading.Event()

    @bus.subscribe(Order)
    def fail(order: Order) -> None:
        if order.number == BATCH - 1:
            last.set()
        raise ValueError("🚌\\" * 2_000)

    bus.start()
    turn, gathered = outcomes.turn, threading.Event()

    def write_all_at_once() -> float:
        gathered.wait(BOUND_SECONDS)
        return turn()

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
