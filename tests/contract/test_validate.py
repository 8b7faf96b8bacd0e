"""Predicates of events: asked at a post and before each run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import pytest

from bus.memory import InMemoryBus
from bus.persistent import PersistentBus
from queue_core.errors import ConfigurationError, InvalidEventError
from queue_core.model.posting import Posting
from queue_core.model.states import State
from stickybus.testing import drain
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Order, Recorder, ended


@dataclass(frozen=True)
class RushOrder(Order):
    """A subtype of the type that has the predicate."""


def _positive(order: Order) -> bool:
    return order.number > 0


def _known(order: Order) -> bool:
    if order.number == 13:
        raise LookupError("nobody knows 13")
    return True


def test_an_event_that_is_not_valid_is_not_posted(bus: PersistentBus) -> None:
    bus.register_event(Order, validate=_positive)
    bus.post(Order(1))
    with pytest.raises(
        InvalidEventError, match=r"Order is not valid.*Nothing was written"
    ) as caught:
        bus.post_many([Order(2), Order(-1)])
    assert (caught.value.class_name, caught.value.record_id) == ("Order", None)
    assert len(bus.find()) == 1, "all or none"


def test_an_exception_is_the_reason(bus: PersistentBus) -> None:
    bus.register_event(Order, validate=_known)
    with pytest.raises(InvalidEventError, match="raised LookupError: nobody knows 13") as caught:
        bus.post(Order(13))
    assert isinstance(caught.value.__cause__, LookupError)


def test_subtypes_are_asked_of_too_and_each_predicate_counts(bus: PersistentBus) -> None:
    bus.register_event(Order, validate=_positive)
    bus.register_event(RushOrder, validate=_known)
    bus.post(RushOrder(1))
    for number in (-1, 13):
        with pytest.raises(InvalidEventError):
            bus.post(RushOrder(number))
    bus.post(Order(13))


def test_plain_dicts_have_a_predicate_by_name(bus: PersistentBus) -> None:
    assert bus.register_event("paid", validate=lambda event: "cents" in event) == "paid"
    bus.post({"cents": 5}, event_name="paid")
    bus.post({}, event_name="free")
    with pytest.raises(InvalidEventError):
        bus.post({}, event_name="paid")


@pytest.mark.parametrize("serial", [False, True])
def test_before_a_run_an_entry_that_is_not_valid_ends_failed_and_no_handler_is_called(
    make_bus: MakeBus, *, serial: bool
) -> None:
    posting, running = make_bus(), make_bus()
    recorder = Recorder()
    running.register_event(Order, validate=_known)
    running.subscribe(Order, recorder, serial=serial)
    ids = posting.post_many([Order(13), Order(1)])
    runs = {ran.entry.record_id: ran for ran in drain(running)}
    failed = runs[ids[0]]
    assert failed.state is State.FAILED
    assert (failed.last_error or "").startswith("InvalidEventError: ")
    assert f"Entry {ids[0]} (Order) is not valid" in (failed.last_error or "")
    assert "nobody knows 13" in (failed.last_error or "")
    assert runs[ids[1]].state is State.PROCESSED
    assert recorder.calls == 1


def test_it_is_asked_before_each_run(bus: PersistentBus) -> None:
    answers = [True, True, False]
    recorder = Recorder(failures=99)
    bus.register_event(Order, validate=lambda _: answers.pop(0))
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(1))
    (entry,) = ended(bus)
    assert (entry.processing_state, entry.error_count, recorder.calls) == (State.FAILED, 1, 1)
    assert (entry.last_error or "").startswith("InvalidEventError: ")


def test_a_registration_without_a_predicate_keeps_the_one_before(bus: PersistentBus) -> None:
    bus.register_event(Order, validate=_positive)
    bus.register_event(Order)
    with pytest.raises(InvalidEventError):
        bus.post(Order(-1))
    bus.register_event(Order, validate=lambda _: True)
    bus.post(Order(-1))


def test_a_queue_has_a_predicate_for_all_that_is_scheduled(make_service: MakeService) -> None:
    service, other = make_service(), make_service()
    recorder = Recorder()
    queue = service.create_queue(
        "shop", "reminders", recorder, validate=lambda event: event.get("customer")
    )
    same = other.create_queue("shop", "reminders", Recorder())
    free = service.create_queue("shop", "free", Recorder())
    wrong: dict[str, int] = {"customer": 0}
    record_id = queue.schedule({"customer": 41}, delay=0)
    with pytest.raises(InvalidEventError):
        queue.schedule(wrong, delay=0)
    with pytest.raises(InvalidEventError):
        queue.schedule_many([Posting(event=wrong)])
    with pytest.raises(InvalidEventError):
        queue.update(record_id, event=wrong)
    with pytest.raises(InvalidEventError):
        queue.recur("daily", wrong, every=timedelta(days=1))
    free.schedule(wrong, delay=0)
    refused = same.schedule(wrong, delay=0)
    states = {ran.entry.record_id: ran.state for ran in drain(service)}
    assert (states.pop(refused), set(states.values())) == (State.FAILED, {State.PROCESSED})
    assert recorder.calls == 1


def test_a_deleted_queue_takes_its_predicate_along(make_service: MakeService) -> None:
    service = make_service()
    service.create_queue("shop", "reminders", Recorder(), validate=lambda _: False)
    service.delete_queue("shop", "reminders")
    service.create_queue("shop", "reminders", Recorder()).schedule({}, delay=0)
    assert [ran.state for ran in drain(service)] == [State.PROCESSED]


def test_the_bus_in_memory_asks_it_too() -> None:
    bus = InMemoryBus()
    recorder = Recorder()
    answers = [True, False]
    bus.register_event(Order, validate=lambda _: answers.pop(0))
    bus.subscribe(Order, recorder)
    bus.post(Order(1))
    with bus:
        bus.wait_until_idle()
    (entry,) = bus.history()
    assert (entry.processing_state, recorder.calls) == (State.FAILED, 0)


async def _coroutine(event: object) -> bool:
    return True


@pytest.mark.parametrize("wrong", [5, "x", _coroutine])
def test_what_is_no_plain_function_is_refused(bus: PersistentBus, wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="validate"):
        bus.register_event(Order, validate=cast("Any", wrong))
