"""Open circuits are told: by an entry, in the log, to an inspector."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy import URL

import stickybus
from tests.contract.circuits.outages import Service, fail, join, pass_time
from tests.contract.cluster import Cluster


def test_an_entry_that_waits_tells_since_when_and_what_probes_next(cluster: Cluster) -> None:
    peer = join(cluster, "a", Service())
    first, second = fail(peer, 1, 2)
    [circuit] = peer.bus.open_circuits()

    [reason] = peer.bus.explain(second).reasons

    assert reason.code == "circuit-open"
    assert reason.facts == {
        "handler": "orders",
        "since": circuit.since,
        "failures": 1,
        "probe_id": first,
        "probe_date": circuit.probe_date,
    }
    assert f"entry {first}, runs at {circuit.probe_date:%Y-%m-%d %H:%M:%S} UTC" in reason.text
    assert [one.code for one in peer.bus.explain(first).reasons] == ["waits-for-retry"]


def test_the_log_tells_when_entries_begin_and_end_to_wait(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service()
    peer = join(cluster, "a", service)
    caplog.set_level(logging.INFO)

    fail(peer, 1, 2)
    pass_time(cluster, 1, peer)
    pass_time(cluster, 1, peer)
    service.away = False
    pass_time(cluster, 11, peer)
    pass_time(cluster, 1, peer)
    pass_time(cluster, 1, peer)

    told = [line.split(" since=")[0] for line in caplog.messages if line.startswith("circuit_")]
    facts = "table=bus_events queue_name=bus subscriber=orders"
    assert told == [f"circuit_open {facts}", f"circuit_closed {facts}"]


def test_an_inspector_lists_open_circuits_and_counts_what_waits(
    cluster: Cluster, database_url: URL
) -> None:
    peer = join(cluster, "a", Service())
    fail(peer, 1, 2, 3)

    with stickybus.inspect(database_url) as inspector:
        assert inspector.open_circuits() == peer.bus.open_circuits()
        assert inspector.open_circuits(table="notifications") == []
        [queue] = inspector.queues(table=peer.store.config.table)

    assert (queue.paused, queue.scheduled + queue.ready) == (2, 1)
