"""Turns of a claim loop beside others that post."""

from __future__ import annotations

from stickybus import Mode
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import statements_of


def node_and_poster(cluster: Cluster) -> tuple[Peer, Peer]:
    """A node that has looked and found nothing, and a bus of another process."""
    node = cluster.join("a", mode=Mode.POLLING)
    node.lifecycle.claim_loop.turn()
    return node, cluster.peer("b", mode=Mode.POLLING)


def turn(node: Peer) -> tuple[list[int], int]:
    """One turn of the claim loop: the orders held after it, and how often it looked."""
    with statements_of(node.store.database) as statements:
        node.lifecycle.claim_loop.turn()
    return node.numbers_held(), len(statements.starting_with("SELECT (SELECT"))
