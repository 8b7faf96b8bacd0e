"""Feeds of ended entries: each listener has its own, and none holds up the engine."""

from __future__ import annotations

import threading

import pytest

from stickybus import ConfigurationError, ExactlyOnceContext, ImmediateRetries, State
from stickybus.testing import drain
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import eventually


def test_each_listener_gets_every_entry_that_has_ended(make_bus: MakeBus) -> None:
    bus = make_bus(retry=ImmediateRetries(1))
    bus.subscribe("Fine", lambda event: event, name="fine")
    bus.subscribe("Broken", lambda event: event["missing"], name="broken")

    @bus.subscribe("Once", name="once", exactly_once=True)
    def once(_event: object, _context: ExactlyOnceContext) -> None: ...

    one, two = bus.listen("one"), bus.listen("two")
    assert bus.listen("one") is one
    assert one.get() is None
    with bus:
        ids = [bus.post({}, event_name=name) for name in ("Fine", "Broken", "Once")]
        eventually(lambda: len(one) == len(two) == 3)
        for feed in (one, two):
            taken = {ended.entry.record_id: ended for ended in iter(feed.get, None)}
            assert [taken[record_id].state for record_id in ids] == [
                State.PROCESSED,
                State.FAILED,
                State.PROCESSED,
            ]
            assert (taken[ids[1]].error_count, taken[ids[0]].last_error) == (2, None)
            assert (taken[ids[1]].last_error or "").startswith("KeyError")
            assert taken.keys() == set(ids)


def test_an_entry_is_in_the_feed_after_its_outcome_was_committed(make_bus: MakeBus) -> None:
    bus = make_bus()
    bus.subscribe("Fine", lambda event: event, name="fine")
    feed = bus.listen("one")
    with bus:
        record_id = bus.post({}, event_name="Fine")
        ended = feed.get(timeout_seconds=20.0)
        assert ended is not None
        assert [entry.record_id for entry in bus.history()] == [record_id]


def test_a_full_feed_drops_its_oldest_and_counts_them(make_bus: MakeBus) -> None:
    bus = make_bus()
    bus.subscribe("Fine", lambda event: event, name="fine")
    small, large = bus.listen("small", capacity=2), bus.listen("large")
    ids = [bus.post({}, event_name="Fine") for _ in range(5)]
    drain(bus)
    assert (len(small), small.dropped, len(large), large.dropped) == (2, 3, 5, 0)
    kept = [ended.entry.record_id for ended in iter(small.get, None)]
    assert kept == [ended.entry.record_id for ended in iter(large.get, None)][-2:]
    assert set(kept) < set(ids)


def test_a_listener_that_ends_gets_nothing_more(make_service: MakeService) -> None:
    service = make_service()
    queue = service.create_queue("shop", "reminders", lambda event: event)
    feed = service.listen("one")
    assert service.stop_listening("one")
    assert not service.stop_listening("one")
    queue.schedule({}, delay=0)
    drain(service)
    assert len(feed) == 0
    assert service.listen("one") is not feed


def test_who_waits_is_woken_by_the_entry(make_bus: MakeBus) -> None:
    bus, taken = make_bus(), list[object]()
    bus.subscribe("Fine", lambda event: event, name="fine")
    feed = bus.listen("one")
    waiting = threading.Thread(target=lambda: taken.append(feed.get(timeout_seconds=20.0)))
    waiting.start()
    bus.post({}, event_name="Fine")
    drain(bus)
    waiting.join(20.0)
    assert len(taken) == 1
    assert taken[0] is not None
    assert "waiting=0, dropped=0" in repr(feed)
    assert feed.listener_id == "one"


def test_arguments_are_checked(make_bus: MakeBus) -> None:
    bus = make_bus()
    for listener in ("", 5, None):
        with pytest.raises(ConfigurationError, match="listener_id"):
            bus.listen(listener)  # type: ignore[arg-type]
    for capacity in (0, -1, 1.5, float("inf"), "5", True):
        with pytest.raises(ConfigurationError, match="capacity"):
            bus.listen("one", capacity=capacity)  # type: ignore[arg-type]
    bus.listen("one", capacity=5)
    with pytest.raises(ConfigurationError, match="listens already"):
        bus.listen("one", capacity=6)
    with pytest.raises(ConfigurationError, match="timeout_seconds"):
        bus.listen("one", capacity=5).get("now")  # type: ignore[arg-type]
