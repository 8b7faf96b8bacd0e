"""Looks at entries that wait for others."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from stickybus import ImmediateRetries, PersistentBus, State
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order, Recorder


def waiting(peer: Peer) -> list[int]:
    return [entry.record_id for entry in peer.bus.find(states="WAITING")]


def ran(peer: Peer) -> list[int]:
    """The numbers of the orders in the order in which their handler was called."""
    return [order.number for order in peer.handler.events]


def waits(peer: Peer) -> int:
    """How many rows the table of waits has."""
    with peer.store.database.begin() as connection:
        return int(connection.execute(text("SELECT count(*) FROM queue_waits")).scalar_one())


def ends(peer: Peer) -> dict[int, State]:
    return {entry.record_id: entry.processing_state for entry in peer.bus.history()}


def failing(cluster: Cluster, *numbers: int) -> tuple[Peer, Recorder]:
    """A node whose handler fails for some orders, for good."""
    peer = cluster.join("a", retry=ImmediateRetries(0))
    recorder = Recorder()

    def handle(order: Order, context: Any) -> None:
        recorder(order, context)
        if order.number in numbers:
            raise RuntimeError

    peer.instead = handle
    return peer, recorder


def settle(cluster: Cluster, *peers: Peer) -> None:
    """Run all that may, over two poll intervals."""
    for _ in range(2):
        for peer in peers:
            peer.run()
        cluster.live(4, *peers)
    for peer in peers:
        peer.run()


def reasons(bus: PersistentBus, record_id: int) -> list[tuple[str, Any]]:
    return [
        (reason.code, reason.facts.get("record_id")) for reason in bus.explain(record_id).reasons
    ]
