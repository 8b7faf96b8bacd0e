"""Lanes of paused entries, once nodes have heard."""

from __future__ import annotations

from queue_core.model.lanes import paused_lane
from stickybus import PersistentBus
from tests.contract.cluster import Cluster, Peer

BUS_LANE = paused_lane("bus")


def lanes(bus: PersistentBus) -> list[str]:
    return [entry.lane for entry in bus.find()]


def hear(cluster: Cluster, *peers: Peer) -> None:
    """Let the time pass after which each node has heard of a change."""
    cluster.live(1, *peers)
