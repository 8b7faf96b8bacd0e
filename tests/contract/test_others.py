"""Events without a subscriber may have a handler: by default it logs them, and they succeed."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from queue_core.model.lanes import PARKED
from stickybus import EntryContext, InMemoryBus, PersistentBus, State
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder, ended, eventually, states


def test_they_are_logged_and_succeed(make_bus: MakeBus, caplog: pytest.LogCaptureFixture) -> None:
    bus = make_bus()
    bus.register_event(Order)
    bus.subscribe_others()
    with caplog.at_level(logging.INFO):
        bus.start()
        ids = [bus.post(Order(1)), bus.post({"a": 1}, event_name="unknown")]
        found = ended(bus, 2)

    assert states(found) == [State.PROCESSED] * 2
    lines = [line for line in caplog.messages if line.startswith("event_without_subscriber ")]
    assert len(lines) == 2
    for record_id, name in zip(ids, ("Order", "unknown"), strict=True):
        assert any(f"record_id={record_id} " in line and name in line for line in lines)


def test_what_was_parked_for_its_unknown_name_is_handled_once_somebody_takes_it(
    make_bus: MakeBus,
) -> None:
    bus = make_bus(mode="POLLING", poll_interval_seconds=0.05)
    seen = list[Any]()
    bus.start()
    make_bus().post({"a": 1}, event_name="unknown")
    eventually(lambda: [entry.lane for entry in bus.find()] == [PARKED], "it is set aside")

    bus.subscribe_others(seen.append)

    assert states(ended(bus)) == [State.PROCESSED]
    assert seen == [{"a": 1}]


def test_who_has_a_subscriber_has_no_other(cluster: Cluster) -> None:
    peer, others = cluster.join("a"), Recorder()
    peer.bus.subscribe_others(others)
    peer.bus.post(Order(1))
    peer.bus.post({}, event_name="other")
    peer.run()
    assert (peer.handler.calls, others.events) == (1, [{}])

    late = Recorder()
    peer.bus.subscribe("other", late)
    peer.bus.post({}, event_name="other")
    peer.run()
    assert (late.calls, others.calls) == (1, 1)

    peer.bus.unsubscribe(peer.handle)
    peer.bus.post(Order(2))
    peer.run()
    assert others.calls == 2


def test_it_is_retried_and_named_like_any_other(cluster: Cluster) -> None:
    peer, others = cluster.join("a"), Recorder(failures=1)
    peer.bus.subscribe_others(others, name="rest")
    peer.bus.post({}, event_name="other")
    peer.run()

    [entry] = peer.bus.history()
    assert (entry.processing_state, entry.error_count) == (State.PROCESSED, 1)


def test_another_handler_replaces_it_and_an_end_ends_it(cluster: Cluster) -> None:
    peer, first, second = cluster.join("a"), Recorder(), Recorder()
    peer.bus.subscribe_others(first)
    peer.bus.subscribe_others(second, name="second")
    peer.bus.post({}, event_name="other")
    peer.run()
    assert (first.calls, second.calls) == (0, 1)

    assert peer.bus.unsubscribe(second)
    assert not peer.bus.unsubscribe(second)
    cluster.peer("poster").bus.post({}, event_name="never seen")
    peer.run()
    assert [entry.lane for entry in peer.bus.find()] == [PARKED]


def test_a_bus_in_memory_has_a_handler_of_others_as_well() -> None:
    seen = list[str]()

    def handle(_event: object, context: EntryContext) -> None:
        seen.append(context.class_name)

    bus: InMemoryBus | PersistentBus = InMemoryBus()
    bus.subscribe_others(handle)
    with bus:
        bus.post({}, event_name="other")
        eventually(lambda: seen == ["other"], "it is handled")
