"""Handlers whose service is out, with circuits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from queue_core.model.lanes import circuit_lane
from stickybus import Circuit
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order

LANE = circuit_lane("bus", "orders")
POLICY = Circuit(initial_seconds=10, factor=2, maximum_seconds=60, jitter=0)
POLICY_OF_OTHERS = Circuit(initial_seconds=1000, maximum_seconds=1000)


@dataclass(frozen=True)
class Other:
    """An event of another handler."""

    number: int


class Service:
    """What handlers call: away, or there. It keeps the numbers of the orders that came."""

    def __init__(self, *, away: bool = True) -> None:
        self.away = away
        self.refused = list[int]()
        self.served = list[int]()

    def __call__(self, event: Order | Other) -> None:
        if self.away:
            self.refused.append(event.number)
            raise ConnectionError("it is away")
        self.served.append(event.number)


def join(cluster: Cluster, name: str, service: Service, **settings: Any) -> Peer:
    """A node whose handler calls the service."""
    peer = cluster.join(name, **settings)
    peer.bus.unsubscribe(peer.handle)
    peer.bus.subscribe(Order, service, name="orders", retry=POLICY)
    return peer


def fail(peer: Peer, *numbers: int) -> list[int]:
    """Post orders that fail; their ids."""
    ids = [int(peer.bus.post(Order(number))) for number in numbers]
    peer.run()
    return ids


def pass_time(cluster: Cluster, seconds: float, *peers: Peer) -> None:
    """Let time pass, and run what is due then."""
    cluster.live(seconds, *peers)
    for peer in peers:
        peer.run()


def waiting(peer: Peer) -> list[int]:
    """The ids of the entries that wait for the circuit."""
    return [entry.record_id for entry in peer.bus.find() if entry.lane == LANE]


def probe(peer: Peer) -> int:
    """The id of the one entry that probes."""
    [found] = peer.bus.open_circuits()
    return found.probe_id
