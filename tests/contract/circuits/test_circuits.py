"""While a handler's circuit is open, its failed entries wait, and one of them probes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import delete

from queue_core.model.lanes import circuit_lane
from sql.tables import queue_circuits
from stickybus import Circuit, ExponentialRetries, GiveUp, RetryLater, State
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order

LANE = circuit_lane("bus", "orders")
POLICY = Circuit(initial_seconds=10, factor=2, maximum_seconds=60, jitter=0)


class Service:
    """What the handlers call: away, or there. It keeps the numbers of the orders that came."""

    def __init__(self, *, away: bool = True) -> None:
        self.away = away
        self.refused = list[int]()
        self.served = list[int]()

    def __call__(self, event: Order, _context: Any = None) -> None:
        if self.away:
            self.refused.append(event.number)
            raise ConnectionError("it is away")
        self.served.append(event.number)


def join(cluster: Cluster, name: str, service: Service, **settings: Any) -> Peer:
    """A node whose handler calls the service."""
    peer = cluster.join(name, **{"retry": POLICY, **settings})
    peer.bus.unsubscribe(peer.handle)
    peer.bus.subscribe(Order, service, name="orders")
    return peer


def fail(peer: Peer, *numbers: int) -> list[int]:
    """Post orders that fail; their ids."""
    ids = [int(peer.bus.post(Order(number))) for number in numbers]
    peer.run()
    return ids


def waiting(peer: Peer) -> list[int]:
    """The ids of the entries that wait for the circuit."""
    return [entry.record_id for entry in peer.bus.find() if entry.lane == LANE]


def probe(peer: Peer) -> int:
    [found] = peer.bus.open_circuits()
    return found.probe_id


def test_failed_entries_wait_and_one_of_them_probes(cluster: Cluster) -> None:
    service = Service()
    peer = join(cluster, "a", service)

    ids = fail(peer, 1, 2, 3)

    assert service.refused == [1, 2, 3]
    assert probe(peer) == ids[0]
    assert waiting(peer) == ids[1:]
    for passed, failures in ((9, 1), (1, 2), (19, 2), (1, 3), (39, 3), (1, 4), (59, 4), (1, 5)):
        cluster.live(passed, peer)
        peer.run()
        [circuit] = peer.bus.open_circuits()
        assert circuit.failures == failures, "probes come after 10, 20, 40 and 60 s"
    assert len(service.refused) == 3 + 4
