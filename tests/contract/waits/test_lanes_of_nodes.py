"""Entries that wait in the lane of their node, once that has stopped, died or left the table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queue_core.model.lanes import ANY_NODE
from stickybus import State
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order
from tests.contract.nodes.reaped import reaped
from tests.contract.order_looks import post, rows
from tests.contract.waits.looks import ran, waiting, waits

MANY = 6


def _stops(peer: Peer) -> None:
    peer.lifecycle.membership.leave()


def _leaves_the_table(peer: Peer) -> None:
    """As a bus that stops while a service of its process lives on."""
    node = peer.lifecycle.node
    assert node is not None
    node.members.clear()
    peer.beat()


ENDS = pytest.mark.parametrize("ends", [_stops, _leaves_the_table])


@ENDS
def test_the_rest_of_an_order_key_waits_for_no_reaper(
    cluster: Cluster, ends: Callable[[Peer], None]
) -> None:
    poster, heir = cluster.join("a"), cluster.join("b")
    post(heir, 0)
    post(poster, *range(1, MANY))
    ends(poster)
    heir.run()
    assert ran(heir) == list(range(MANY))
    assert (reaped(heir), rows(heir)) == ([], (0, 0))


def test_the_rest_of_an_order_key_of_a_dead_node_is_not_reaped_one_by_one(
    cluster: Cluster,
) -> None:
    poster, heir = cluster.join("a"), cluster.join("b")
    post(poster, *range(MANY))
    cluster.bury("a", heir)
    heir.run()
    assert ran(heir) == list(range(MANY))
    assert len(reaped(heir)) == 1
    assert rows(heir) == (0, 0)


@ENDS
def test_entries_that_wait_for_others_wait_for_no_reaper(
    cluster: Cluster, ends: Callable[[Peer], None]
) -> None:
    poster, heir = cluster.join("a"), cluster.join("b")
    first = heir.bus.post(Order(0))
    for number in range(1, MANY):
        first = poster.bus.post(Order(number), after=[first])
    ends(poster)
    heir.run()
    assert ran(heir) == list(range(MANY))
    assert (reaped(heir), waits(heir)) == ([], 0)


@ENDS
def test_what_a_dead_node_had_released_before_its_turn_waits_for_no_reaper(
    cluster: Cluster, ends: Callable[[Peer], None]
) -> None:
    poster, heir = cluster.join("a"), cluster.join("b")
    first = heir.bus.post(Order(0))
    post(heir, 1)
    post(poster, 2, after=[first])
    ends(poster)
    heir.run()
    assert sorted(ran(heir)) == [0, 1, 2]
    assert (reaped(heir), waits(heir)) == ([], 0)


def test_those_of_a_live_node_stay_its_own(cluster: Cluster) -> None:
    poster, other = cluster.join("a"), cluster.join("b")
    first = other.bus.post(Order(0))
    post(other, 1)
    ordered, after = post(poster, 2), [poster.bus.post(Order(3), after=[first])]
    other.run()
    assert waiting(other) == []
    assert {(entry.record_id, entry.lane) for entry in other.bus.find()} == {
        (record_id, "a") for record_id in [*ordered, *after]
    }
    poster.run()
    assert sorted(ran(poster)) == [2, 3]


def test_a_node_that_comes_back_has_its_own_again(cluster: Cluster) -> None:
    poster, other = cluster.join("a"), cluster.join("b")
    [first, *_] = [post(other, number)[0] for number in range(3)]
    post(poster, 3, 4)
    _stops(poster)
    assert other.bus.find(record_ids=[first])[0].lane == "b"
    other.lifecycle.run_due()
    poster.join()
    cluster.tick(2, poster, other)
    while other.run():
        pass
    assert {entry.lane for entry in other.bus.find(states=State.AVAILABLE)} <= {"a"}
    poster.run()
    assert ran(other) == [0, 1, 2]
    assert ran(poster) == [3, 4]
    assert ANY_NODE not in {entry.lane for entry in other.bus.history()}
