"""A scrape and an overview show what holds entries: limits, order keys, circuits and pauses."""

from __future__ import annotations

from datetime import timedelta

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import URL

import stickybus
from queue_core.reading import obstacles
from stickybus import ImmediateRetries, Posting, QueueStatus
from tests.contract.circuits.outages import Service, fail, join, pass_time
from tests.contract.cluster import Cluster
from tests.contract.harness import Order, Recorder
from tests.contract.limiting.key_looks import hear, post


def shown(name: str) -> float | None:
    labels = {"table": "bus_events", "queue_name": "bus"}
    return REGISTRY.get_sample_value(f"stickybus_{name}", labels)


def status(database_url: URL) -> QueueStatus:
    with stickybus.inspect(database_url) as inspector:
        [queue] = inspector.queues(table="bus_events")
    return queue


def test_entries_wait_for_a_limit_of_their_queue(cluster: Cluster, database_url: URL) -> None:
    peer = cluster.join("a")
    peer.bus.limit(concurrency=1)
    hear(cluster, peer)
    for number in range(3):
        peer.bus.post(Order(number))
    peer.claim()

    assert (shown("entries_limited"), shown("entries_ready")) == (2, 2)
    queue = status(database_url)
    assert (queue.running, queue.limited, queue.ready) == (1, 2, 0)
    assert queue.oldest_ready_seconds is None

    peer.bus.unlimit()
    hear(cluster, peer)
    peer.run()
    assert (shown("entries_limited"), shown("entries_ready")) == (0, 0)


def test_entries_wait_for_a_limit_of_their_key(cluster: Cluster, database_url: URL) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1)
    hear(cluster, peer)
    for number in range(6):
        post(peer, number, key=str(number % 2))
    peer.claim()

    assert (shown("entries_limited"), shown("entries_ready")) == (4, 4)
    queue = status(database_url)
    assert (queue.running, queue.limited, queue.ready) == (2, 4, 0)

    peer.run()
    assert shown("entries_limited") == 0


def test_a_failed_entry_holds_its_order_key(cluster: Cluster, database_url: URL) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    assert shown("order_keys_held") == 0
    peer.handler = Recorder(failures=2)
    ids = {key: peer.bus.post(Order(1), order_key=key) for key in "ab"}
    for key in ids:
        peer.bus.post(Order(2), order_key=key)
    peer.run()

    assert shown("order_keys_held") == status(database_url).held_keys == 2

    peer.bus.retry(ids["a"])
    peer.bus.discard(ids["b"])
    assert shown("order_keys_held") == status(database_url).held_keys == 0


def test_a_scrape_looks_at_a_bounded_number_of_order_keys(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    peer.handler = Recorder(failures=3)
    for key in "abc":
        peer.bus.post_many(Posting(event=Order(number), order_key=key) for number in range(2))
    peer.run()
    assert shown("order_keys_held") == 3

    monkeypatch.setattr(obstacles, "COUNT_LIMIT", 2)
    assert shown("order_keys_held") == 2


def test_a_handler_has_an_open_circuit(cluster: Cluster) -> None:
    service = Service()
    peer = join(cluster, "a", service)
    assert shown("circuits_open") == 0
    fail(peer, 1, 2)

    assert shown("circuits_open") == 1

    service.away = False
    pass_time(cluster, 11, peer)
    assert shown("circuits_open") == 0


def test_a_queue_and_a_handler_are_paused(cluster: Cluster) -> None:
    peer = cluster.join("a")
    assert shown("pauses_in_force") == 0
    peer.bus.pause(until=timedelta(seconds=60))
    peer.bus.pause(handler="orders")

    assert shown("pauses_in_force") == 2

    peer.bus.resume(handler="orders")
    assert shown("pauses_in_force") == 1
    cluster.live(61, peer)
    assert shown("pauses_in_force") == 0
