"""Looks at nodes of a limited queue."""

from __future__ import annotations

from queue_core.model.lanes import limited_lane
from stickybus import PersistentBus, State
from tests.contract.cluster import Cluster, Peer

BUS_LANE = limited_lane("bus")


def claimed(bus: PersistentBus) -> int:
    """How many entries are claimed now, by anybody."""
    return len(bus.find(states=State.IN_PROCESSING))


def hear(cluster: Cluster, *peers: Peer) -> None:
    """Let the time pass after which each node has heard of a change."""
    cluster.live(1, *peers)
    for peer in peers:
        peer.lifecycle.limited.turn(cluster.clock.monotonic())


def numbers_run(*peers: Peer) -> list[int]:
    return sorted(number for peer in peers for number in peer.handler.numbers())
