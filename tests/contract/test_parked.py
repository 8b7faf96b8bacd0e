"""Entries that no node knows: set aside, visible, and delivered once somebody knows them."""

from __future__ import annotations

import re
import time
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import URL

from queue_core.finishing.parked_log import PARKED_LOG_SECONDS
from queue_core.model.lanes import PARKED
from stickybus import BusConfig, PersistentBus, State
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder, ended, eventually, states


def lanes(bus: PersistentBus) -> list[str]:
    return [entry.lane for entry in bus.find()]


def test_an_event_that_no_node_knows_is_parked_and_not_run(cluster: Cluster) -> None:
    peer = cluster.join("a")
    cluster.peer("b").bus.post({"a": 1}, event_name="Invoice.paid")

    peer.run()

    [entry] = peer.bus.find()
    assert (entry.lane, entry.processing_state, entry.processing_owner) == (
        PARKED,
        State.AVAILABLE,
        None,
    )
    assert peer.bus.history() == []


def test_a_parked_event_is_delivered_once_a_node_that_knows_it_joins(make_bus: MakeBus) -> None:
    old = make_bus(node_name="old").start()
    make_bus().post({"a": 1}, event_name="Invoice.paid")
    eventually(lambda: lanes(old) == [PARKED], "it is parked")
    recorder, new = Recorder(), make_bus(node_name="new")
    new.subscribe("Invoice.paid", recorder)

    new.start()

    assert recorder.wait() == [{"a": 1}]
    assert [entry.processing_state for entry in ended(new)] == [State.PROCESSED]


def test_a_parked_event_is_delivered_once_a_handler_is_registered_while_the_bus_runs(
    make_bus: MakeBus,
) -> None:
    bus, recorder = make_bus().start(), Recorder()
    make_bus().post({"a": 1}, event_name="Invoice.paid")
    eventually(lambda: lanes(bus) == [PARKED], "it is parked")

    bus.subscribe("Invoice.paid", recorder)

    assert recorder.wait() == [{"a": 1}]


def test_parked_events_hold_up_nobody(cluster: Cluster) -> None:
    peer = cluster.join("a")
    stranger = cluster.peer("b").bus
    for number in range(30):
        stranger.post({}, event_name="Invoice.paid")
        stranger.post(Order(number))

    peer.run()

    assert peer.handler.numbers() == list(range(30))
    assert set(lanes(peer.bus)) == {PARKED}
    assert len(peer.bus.find()) == 30


def test_the_log_tells_of_parked_events_once_a_second_at_most(
    make_bus: MakeBus, caplog: pytest.LogCaptureFixture
) -> None:
    bus, stranger, began = make_bus().start(), make_bus(), time.monotonic()

    def told() -> list[int]:
        lines = [record.getMessage() for record in caplog.records]
        found = [re.search(r"entries_parked .*entries=(\d+)", line) for line in lines]
        return [int(one[1]) for one in found if one]

    for _ in range(20):  # each a batch of its own
        stranger.post({}, event_name="Invoice.paid")
        eventually(lambda: set(lanes(bus)) == {PARKED}, "it is parked")
    eventually(lambda: sum(told()) == 20, "all are told of")

    assert len(told()) <= 1 + (time.monotonic() - began) / PARKED_LOG_SECONDS
    stranger.post({}, event_name="Invoice.paid")
    eventually(lambda: lanes(bus) == [PARKED] * 21, "it is parked")
    bus.stop()
    assert sum(told()) == 21


def test_parked_events_are_visible_in_the_metrics_of_their_queue(
    database_url: URL, cluster: Cluster
) -> None:
    registry = CollectorRegistry()
    peer = cluster.join("a")
    cluster.peer("b").bus.post({}, event_name="Invoice.paid")
    peer.run()
    watching = PersistentBus(database_url, BusConfig(), metrics_registry=registry)
    labels = {"table": "bus_events", "queue_name": "bus"}

    assert registry.get_sample_value("stickybus_entries_parked", labels) == 1
    assert registry.get_sample_value("stickybus_entries_ready", labels) in {0, None}
    watching.close()


def test_a_parked_event_ends_failed_with_the_reason_after_its_retention_and_not_before(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a", poll_interval_seconds=3)
    cluster.peer("b").bus.post({"a": 1}, event_name="Invoice.paid")
    peer.run()
    cluster.clock.advance(seconds=timedelta(days=14).total_seconds() - 60)
    peer.beat()
    peer.run()
    assert lanes(peer.bus) == [PARKED]

    cluster.clock.advance(seconds=120)
    peer.beat()
    peer.run()

    [failed] = peer.bus.history()
    assert (failed.processing_state, failed.event_json) == (State.FAILED, '{"a":1}')
    assert (failed.last_error or "").startswith("UnknownEvent: ")
    assert failed.started_date is None


def test_a_known_event_is_never_ended_however_long_it_was_parked(cluster: Cluster) -> None:
    peer = cluster.join("a")
    cluster.peer("b").bus.post({"a": 1}, event_name="Invoice.paid")
    peer.run()
    cluster.clock.advance(seconds=timedelta(days=15).total_seconds())
    recorder = Recorder()
    peer.bus.subscribe("Invoice.paid", recorder)
    peer.beat()

    peer.claim()
    peer.run()

    assert recorder.events == [{"a": 1}]
    assert [entry.processing_state for entry in peer.bus.history()] == [State.PROCESSED]


def test_a_look_that_is_asked_for_while_one_runs_is_not_forgotten(cluster: Cluster) -> None:
    node = cluster.join("a")
    node.bus.post({"number": 1}, event_name="unknown")
    node.run()
    parked = node.parked
    parked.look_at_all()
    knows = parked.can_end

    def known_too_late(queue_name: str, class_name: str) -> bool:
        known = knows(queue_name, class_name)
        node.bus.subscribe("unknown", node.handler, name="late")
        return known

    vars(parked)["can_end"] = known_too_late
    parked.turn(node.lifecycle.clock.monotonic())
    vars(parked)["can_end"] = knows

    node.run()  # it is brought back
    node.run()
    assert states(node.bus.history()) == [State.PROCESSED]
