"""What replaces an entry that was set aside waits for what its own posting has to wait for."""

from __future__ import annotations

from typing import Any

import pytest

from queue_core.model.lanes import circuit_lane, paused_lane
from tests.contract.circuits.outages import Other, Service, fail, join, pass_time
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order, Recorder
from tests.contract.limiting.key_looks import ANN, lanes, post
from tests.contract.pausing.looks import hear
from tests.contract.waits.looks import ran

REPLACING = pytest.mark.parametrize("on_conflict", ["replace", "debounce"])


def codes(peer: Peer, record_id: int) -> list[str]:
    return [reason.code for reason in peer.bus.explain(record_id).reasons]


@REPLACING
def test_with_another_limit_key_it_does_not_wait_for_the_old_one(
    cluster: Cluster, on_conflict: Any
) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(per_key=1)
    post(peer, 0)
    waits = peer.bus.post(Order(1), key="effect", limit_key="ann")
    peer.claim()
    assert lanes(peer) == [ANN]

    peer.bus.post(Order(2), key="effect", limit_key="bob", on_conflict=on_conflict)
    assert "limited" not in codes(peer, waits)
    peer.claim()
    assert peer.numbers_held() == [0, 2]


def test_with_the_same_limit_key_it_waits_still(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(per_key=1)
    post(peer, 0)
    waits = peer.bus.post(Order(1), key="effect", limit_key="ann")
    peer.claim()

    peer.bus.post(Order(2), key="effect", limit_key="ann", on_conflict="replace")
    peer.claim()
    assert lanes(peer) == [ANN]
    assert "limited" in codes(peer, waits)
    peer.run()
    assert ran(peer) == [0, 2]


def test_an_event_of_another_handler_does_not_wait_for_the_circuit_of_the_first(
    cluster: Cluster,
) -> None:
    service, others = Service(), Recorder()
    peer = join(cluster, "a", service)
    peer.bus.subscribe(Other, others, name="others")
    fail(peer, 1)
    waits = peer.bus.post(Order(2), key="effect")
    peer.run()
    assert lanes(peer)[1:] == [circuit_lane("bus", "orders")]

    peer.bus.post(Other(3), key="effect", on_conflict="replace")
    assert "circuit-open" not in codes(peer, waits)
    pass_time(cluster, 1, peer)
    assert others.numbers() == [3]
    assert peer.bus.open_circuits() != []


def test_an_event_of_another_handler_does_not_wait_for_the_end_of_a_pause(
    cluster: Cluster,
) -> None:
    """It runs on the node that has posted the first one, as if it had never been paused."""
    one, other, others = cluster.join("a"), cluster.join("b"), Recorder()
    for peer in (one, other):
        peer.bus.subscribe(Other, others if peer is one else Recorder(), name="others")
    one.bus.pause(handler="orders")
    hear(cluster, one, other)
    one.bus.post(Order(1), key="effect")
    one.run()
    assert lanes(one) == [paused_lane("bus", "orders")]

    other.bus.post(Other(2), key="effect", on_conflict="replace")
    hear(cluster, one, other)
    other.run()
    one.run()
    assert others.numbers() == [2]


def test_it_waits_for_the_end_of_a_pause_of_its_queue(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.pause()
    hear(cluster, peer)
    peer.bus.post(Order(1), key="effect")
    peer.run()

    peer.bus.post(Order(2), key="effect", on_conflict="replace")
    hear(cluster, peer)
    peer.run()
    assert lanes(peer) == [paused_lane("bus")]
    assert peer.handler.calls == 0
    peer.bus.resume()
    hear(cluster, peer)
    peer.run()
    assert ran(peer) == [2]
