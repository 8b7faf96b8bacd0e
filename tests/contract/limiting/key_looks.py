"""Looks at entries with limit keys."""

from __future__ import annotations

from typing import Any

from queue_core.claiming.limited_keys import ROUNDS_A_LEASE
from queue_core.model.lanes import keyed_lane
from stickybus import State
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order

ANN = keyed_lane("bus", "ann")


def hear(cluster: Cluster, *peers: Peer, seconds: int = 1) -> None:
    """Let the time pass after which each node has heard of a change."""
    cluster.live(seconds, *peers)
    for peer in peers:
        peer.lifecycle.limited.turn(cluster.clock.monotonic())
        peer.lifecycle.limited.keys.turn(cluster.clock.monotonic())


def go_round(cluster: Cluster, *peers: Peer) -> None:
    """Let nodes go through all keys."""
    hear(cluster, *peers, seconds=int(peers[0].bus.config.node.lease_seconds / ROUNDS_A_LEASE) + 1)


def post(peer: Peer, *numbers: int, key: str | None = "ann", **options: Any) -> None:
    for number in numbers:
        peer.bus.post(Order(number), limit_key=key, **options)


def claimed(peer: Peer) -> int:
    return len(peer.bus.find(states=State.IN_PROCESSING))


def lanes(peer: Peer) -> list[str]:
    return [entry.lane for entry in peer.bus.find(states=State.AVAILABLE)]


def keys_with_rows(peer: Peer) -> set[str]:
    page = peer.store.statements.page_of_keys
    rows = peer.store.database.fetch(lambda connection: page(connection, after="", limit=100))
    return {row.lane for row in rows}
