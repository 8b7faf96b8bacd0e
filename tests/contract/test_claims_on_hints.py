"""The thread that hears a hint claims, unless that is for the claim loop to do."""

from __future__ import annotations

from typing import Any

from sqlalchemy.exc import OperationalError

from queue_core.model.lanes import ANY_NODE
from tests.contract.claim_turns import node_and_poster, turn
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order, elsewhere, statements_of


def node_that_has_heard(cluster: Cluster) -> tuple[Peer, Peer]:
    """A node that holds one order and waits for its next look, and a bus of another process."""
    node, poster = node_and_poster(cluster)
    poster.bus.post(Order(1))
    node.lifecycle.claim_loop.hear(ANY_NODE)
    assert woken(node)  # for a look
    node.lifecycle.claim_loop.awake.clear()
    node.lifecycle.claim_loop.turn()
    return node, poster


def woken(node: Peer) -> bool:
    """Whether the claim loop will take a turn at once."""
    return node.lifecycle.claim_loop.awake.is_set


def test_who_hears_of_entries_claims_them_and_does_not_wake_the_loop(cluster: Cluster) -> None:
    node, poster = node_that_has_heard(cluster)
    poster.bus.post(Order(2))

    with statements_of(node.store.database) as statements:
        node.lifecycle.claim_loop.hear(ANY_NODE)

    assert node.numbers_held() == [1, 2]
    assert not statements.starting_with("SELECT (SELECT")
    assert not woken(node)


def test_a_turn_that_the_claim_loop_misses_meanwhile_comes_after(cluster: Cluster) -> None:
    node, poster = node_that_has_heard(cluster)
    poster.bus.post(Order(2))
    claim, pauses = node.moves.claim, list[float]()

    def during(*arguments: Any) -> object:
        pauses.append(elsewhere(node.lifecycle.claim_loop.turn))
        return claim(*arguments)

    vars(node.moves)["claim"] = during
    node.lifecycle.claim_loop.hear(ANY_NODE)

    assert pauses == [node.lifecycle.config.poll_interval_seconds]
    assert woken(node)


def test_who_hears_leaves_the_claim_to_a_loop_that_has_missed_its_turn(cluster: Cluster) -> None:
    """Else the loop, which looks, sweeps and starts entries, starves while hints keep coming."""
    node, poster = node_that_has_heard(cluster)
    poster.bus.post(Order(2))
    with node.lifecycle.holdings.gates.claiming():
        elsewhere(node.lifecycle.claim_loop.turn)

    node.lifecycle.claim_loop.hear(ANY_NODE)

    assert node.numbers_held() == [1]
    assert woken(node)
    assert turn(node) == ([1, 2], 0)


def test_who_hears_leaves_the_claim_to_a_loop_whose_turn_has_come(cluster: Cluster) -> None:
    node, poster = node_that_has_heard(cluster)
    poster.bus.post(Order(2))
    cluster.clock.advance(seconds=node.lifecycle.claimer.pause())

    node.lifecycle.claim_loop.hear(ANY_NODE)

    assert node.numbers_held() == [1]


def test_a_claim_that_fails_where_it_was_heard_is_the_loops_to_repeat(cluster: Cluster) -> None:
    node, poster = node_that_has_heard(cluster)
    poster.bus.post(Order(2))
    claim, failures = node.moves.claim, [OperationalError("", None, RuntimeError())]

    def failing(*arguments: Any) -> object:
        if failures:
            raise failures.pop()
        return claim(*arguments)

    vars(node.moves)["claim"] = failing
    node.lifecycle.claim_loop.hear(ANY_NODE)

    assert woken(node)
    assert turn(node) == ([1, 2], 0)


def test_a_claim_under_way_goes_on_and_the_loop_claims_what_was_heard(cluster: Cluster) -> None:
    node, poster = node_that_has_heard(cluster)
    poster.bus.post(Order(2))

    with node.lifecycle.holdings.gates.claiming():
        elsewhere(lambda: node.lifecycle.claim_loop.hear(ANY_NODE))

    assert node.numbers_held() == [1]
    assert woken(node)
    assert turn(node) == ([1, 2], 0)
