"""A paused queue or handler starts nothing, on any node, until it is resumed."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import URL

import stickybus
from queue_core.model.lanes import ANY_NODE, is_paused, paused_lane
from stickybus import InvalidPostError, NaiveDateTimeError, PersistentBus
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Order, Recorder, engine_of, eventually, lifecycle_of
from tests.contract.pausing.looks import BUS_LANE, hear, lanes


def test_a_paused_bus_runs_nothing_on_any_node_until_it_is_resumed(cluster: Cluster) -> None:
    one, other = cluster.join("a"), cluster.join("b")
    one.bus.pause(reason="maintenance", by="ann")
    hear(cluster, one, other)
    for peer in (one, other):
        peer.bus.post(Order(1))
        peer.run()

    assert lanes(one.bus) == [BUS_LANE] * 2
    assert one.handler.calls == other.handler.calls == 0

    assert other.bus.resume()
    hear(cluster, one, other)
    one.run()
    other.run()

    assert one.handler.calls + other.handler.calls == 2
    assert one.bus.find() == []


def test_what_is_paused_is_told_with_who_why_and_until_when(
    make_bus: MakeBus, database_url: URL
) -> None:
    bus, until = make_bus(), datetime(2100, 1, 1, tzinfo=UTC)

    made = bus.pause(reason="the mail server is down", until=until, by="ann")
    of_handler = bus.pause(handler="mails", by="bob")

    assert (made.queue_name, made.handler, made.paused_by) == ("bus", None, "ann")
    assert (made.reason, made.until) == ("the mail server is down", until)
    assert abs(datetime.now(UTC) - made.since) < timedelta(minutes=1)
    assert bus.pauses() == [made, of_handler]
    with stickybus.inspect(database_url) as inspector:
        assert inspector.pauses() == [made, of_handler]
        assert inspector.pauses(table="notifications") == []


def test_another_pause_replaces_the_first_and_who_paused_it_has_a_default(
    make_bus: MakeBus,
) -> None:
    bus = make_bus()
    bus.pause(reason="first", by="ann")

    second = bus.pause()

    assert bus.pauses() == [second]
    assert second.paused_by != ""
    assert second.reason is None
    assert bus.resume()
    assert not bus.resume()
    assert bus.pauses() == []


def test_a_pause_ends_by_itself(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.pause(until=timedelta(seconds=30))
    peer.bus.post(Order(1))
    peer.run()
    assert peer.handler.calls == 0

    cluster.live(29, peer)
    peer.run()
    assert peer.handler.calls == 0
    assert len(peer.bus.pauses()) == 1

    cluster.live(2, peer)
    peer.run()
    assert peer.handler.calls == 1
    assert peer.bus.pauses() == []
    assert not peer.bus.resume()


def test_a_pause_holds_for_a_node_that_starts_from_its_first_entry(make_bus: MakeBus) -> None:
    make_bus().pause()
    make_bus().post(Order(1))
    bus, recorder = make_bus(), Recorder()
    bus.subscribe(Order, recorder)

    bus.start()
    eventually(lambda: lanes(bus) == [BUS_LANE], "it is set aside")
    bus.post(Order(2))
    eventually(lambda: lanes(bus) == [BUS_LANE] * 2, "both are set aside")

    assert recorder.calls == 0
    bus.resume()
    recorder.wait(2)
    assert recorder.numbers() == [1, 2]


@pytest.mark.slow
def test_running_nodes_obey_within_a_second_and_resume_within_a_second(make_bus: MakeBus) -> None:
    bus, outside, recorder = make_bus(poll_interval_seconds=60), make_bus(), Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(0))
    recorder.wait()

    outside.pause()
    eventually(lambda: lifecycle_of(bus).claim_loop.paused.pauses.known, "it has heard")
    bus.post(Order(1))
    eventually(lambda: lanes(bus) == [BUS_LANE], "it is set aside")

    began = time.monotonic()
    outside.resume()
    recorder.wait(2)
    assert time.monotonic() - began < 10.0  # not by the poll; a loaded machine may need seconds


def test_a_running_handler_finishes(make_bus: MakeBus) -> None:
    bus, recorder = make_bus(), Recorder(hold=True)
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(1))
    recorder.wait()

    bus.pause()
    recorder.release()

    eventually(lambda: bus.history(states=["PROCESSED"]), "it ends")


def test_what_was_claimed_before_the_pause_and_waits_for_a_serial_handler_does_not_start(
    make_bus: MakeBus,
) -> None:
    bus, recorder = make_bus(), Recorder(hold=True)
    bus.subscribe(Order, recorder, serial=True)
    bus.start()
    bus.post_many([Order(number) for number in range(5)])
    recorder.wait()

    bus.pause()
    recorder.release()

    eventually(lambda: lanes(bus) == [BUS_LANE] * 4, "the others are set aside")
    assert recorder.calls == 1


def test_other_queues_of_the_table_flow_past_a_paused_backlog_that_costs_no_claims(
    make_service: MakeService,
) -> None:
    service, paused, free = make_service(), Recorder(), Recorder()
    held = service.create_queue("shop", "held", paused, event_types=[Order])
    flows = service.create_queue("shop", "flows", free, event_types=[Order])
    service.start()
    held.pause()
    for number in range(50):
        held.schedule(Order(number), delay=0)
    eventually(lambda: {entry.lane for entry in held.find()} == {paused_lane("shop:held")})
    counts = [entry.claim_count for entry in held.find()]

    flows.schedule(Order(99), delay=0)
    free.wait()

    assert paused.calls == 0
    assert [entry.claim_count for entry in held.find()] == counts
    held.resume()
    paused.wait(50)
    assert paused.numbers() == list(range(50))


def test_a_long_backlog_comes_back_in_its_order(cluster: Cluster, monkeypatch: Any) -> None:
    monkeypatch.setattr("queue_core.claiming.set_aside.PAGE", 7)
    peer = cluster.join("a", handler_threads=1)
    peer.bus.pause()
    for number in range(40):
        peer.bus.post(Order(number))
        cluster.clock.advance(seconds=0.001)
    peer.run()
    assert peer.handler.calls == 0

    peer.bus.resume()
    for _ in range(8):
        peer.run()

    assert [order.number for order in peer.handler.events] == list(range(40))


def test_paused_entries_are_counted_as_such(
    cluster: Cluster, database_url: URL, make_bus: MakeBus
) -> None:
    peer, registry = cluster.join("a"), CollectorRegistry()
    peer.bus.pause()
    peer.bus.post_many([Order(1), Order(2)])
    peer.run()
    with stickybus.inspect(database_url) as inspector:
        [status] = inspector.queues(table="bus_events")
        [depth] = inspector.depths(table="bus_events")
        findings = {finding.check for finding in inspector.doctor()}
    assert (status.paused, status.ready, status.scheduled) == (2, 0, 0)
    assert (depth.paused, depth.ready) == (2, 0)
    assert "waiting-entries" not in findings
    watching = PersistentBus(database_url, metrics_registry=registry)
    labels = {"table": "bus_events", "queue_name": "bus"}
    assert registry.get_sample_value("stickybus_entries_paused", labels) == 2
    watching.close()


def test_no_node_may_have_a_name_like_the_lane_of_a_pause(make_bus: MakeBus) -> None:
    assert is_paused(BUS_LANE)
    assert BUS_LANE != ANY_NODE
    with pytest.raises(stickybus.ConfigurationError):
        make_bus(node_name=BUS_LANE)


@pytest.mark.parametrize(
    "options",
    [
        {"handler": ""},
        {"handler": "x" * 1_001},
        {"by": "x" * 256},
        {"reason": "\0"},
        {"until": timedelta.max},
    ],
)
def test_a_pause_that_could_not_be_stored_is_refused(
    make_bus: MakeBus, options: dict[str, Any]
) -> None:
    bus = make_bus()
    with pytest.raises(InvalidPostError):
        bus.pause(**options)
    with pytest.raises(NaiveDateTimeError):
        bus.pause(until=datetime(2100, 1, 1))  # noqa: DTZ001
    assert bus.pauses() == []


def test_a_refused_pause_names_the_argument_and_its_value(make_bus: MakeBus) -> None:
    with pytest.raises(InvalidPostError) as caught:
        make_bus().pause(handler="")
    assert (caught.value.key, caught.value.value) == ("handler", "''")


def test_names_of_any_length_and_kind_can_be_paused(make_bus: MakeBus) -> None:
    bus = make_bus()
    name = "ä😀'%" * 250
    bus.pause(handler=name, reason="…'%s", by="O'Hara 😀")

    [found] = bus.pauses()

    assert (found.handler, found.reason, found.paused_by) == (name, "…'%s", "O'Hara 😀")
    assert engine_of(bus).config.table == found.table
    assert bus.resume(handler=name)
