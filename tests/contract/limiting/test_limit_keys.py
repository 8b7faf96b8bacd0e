"""Of the entries of one limit key, all nodes together run no more than their queue's limit says."""

from __future__ import annotations

import pytest

import stickybus
from queue_core.model.lanes import ANY_NODE, SUSPECT, is_keyed
from stickybus import Mode
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder, ended, eventually
from tests.contract.limiting.key_looks import (
    ANN,
    claimed,
    go_round,
    hear,
    keys_with_rows,
    lanes,
    post,
)


@pytest.mark.parametrize("mode", list(Mode))
def test_all_nodes_together_claim_no_more_of_a_key_than_the_limit(
    cluster: Cluster, mode: Mode
) -> None:
    one, other = cluster.join("a", mode=mode), cluster.join("b", mode=mode)
    one.bus.limit(per_key=2)
    hear(cluster, one, other)

    for number in range(10):
        post((one, other)[number % 2], number)
        one.claim()
        other.claim()
        assert claimed(one) <= 2

    assert claimed(one) == 2
    assert lanes(one) == [ANN] * 8
    for _ in range(5):
        one.run()
        other.run()
    assert sorted(one.handler.numbers() + other.handler.numbers()) == list(range(10))


def test_keys_have_places_of_their_own_and_entries_without_a_key_need_none(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(per_key=1)
    post(peer, 0, 1, key="ann")
    post(peer, 2, 3, key="bob")
    post(peer, 4, 5, key=None)

    peer.claim()
    assert peer.numbers_held() == [0, 2, 4, 5]
    peer.run()
    assert sorted(peer.handler.numbers()) == list(range(6))


def test_a_key_without_a_limit_changes_nothing(cluster: Cluster) -> None:
    peer = cluster.join("a")
    post(peer, 0, 1)
    peer.claim()
    assert peer.numbers_held() == [0, 1]
    assert keys_with_rows(peer) == set()


def test_the_end_of_one_lets_the_next_go_at_once_in_the_order_of_dates(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1)
    post(peer, *range(4))
    peer.claim()
    assert lanes(peer) == [ANN] * 3

    peer.lifecycle.run_due()
    assert peer.handler.numbers() == [0]
    assert lanes(peer) == [ANY_NODE, ANN, ANN]
    peer.claim()
    assert peer.numbers_held() == [1]
    peer.run()
    assert peer.handler.numbers() == list(range(4))


def test_an_entry_that_waits_for_its_retry_gives_its_place_up(cluster: Cluster) -> None:
    peer = cluster.join("a", retry=stickybus.ExponentialRetries(initial_seconds=300))
    peer.handler = Recorder(failures=1)
    peer.bus.limit(per_key=1)
    post(peer, 0, 1)
    peer.run()

    assert peer.handler.calls == 2
    assert [entry.error_count for entry in peer.bus.find()] == [1]


def test_an_entry_with_a_date_takes_no_place_before_it(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1)
    post(peer, 0, delay=60)
    post(peer, 1)
    peer.run()
    assert peer.handler.numbers() == [1]
    post(peer, 2)
    cluster.live(61, peer)
    peer.run()
    assert sorted(peer.handler.numbers()) == [0, 1, 2]


def test_an_entry_that_is_set_aside_in_a_pause_gives_its_place_up(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=4)
    peer.bus.limit(per_key=1)
    post(peer, 0, 1, 2)
    peer.claim()
    assert peer.numbers_held() == [0]
    peer.bus.pause()
    peer.lifecycle.pool.run_submitted()
    peer.lifecycle.finisher.write_all()
    assert peer.handler.calls == 0

    peer.bus.resume()
    hear(cluster, peer)
    peer.run()
    assert sorted(peer.handler.numbers()) == [0, 1, 2]


def test_the_places_of_a_dead_node_are_free_once_it_was_reaped(cluster: Cluster) -> None:
    dead, alive = cluster.join("a"), cluster.join("b")
    dead.bus.limit(per_key=2)
    hear(cluster, dead, alive)
    post(dead, *range(5))
    assert len(dead.claim()) == 2
    assert alive.claim() == []

    cluster.bury("a", alive)
    for _ in range(3):
        go_round(cluster, alive)
        alive.run()

    assert sorted(alive.handler.numbers()) == list(range(5))
    assert dead.handler.calls == 0


def test_a_suspect_that_finds_no_place_is_a_suspect_when_it_has_one(cluster: Cluster) -> None:
    dead, alive = cluster.join("a", mode=Mode.POLLING), cluster.join("b", mode=Mode.POLLING)
    dead.bus.limit(per_key=1)
    hear(cluster, dead, alive)
    post(dead, 0)
    dead.claim()
    cluster.bury("a", alive)
    assert lanes(alive) == [SUSPECT]
    post(alive, 1)
    alive.claim()
    assert alive.numbers_held() == [1]
    assert lanes(alive) == [ANN]

    alive.lifecycle.pool.run_submitted()
    alive.lifecycle.finisher.write_all()
    assert lanes(alive) == [SUSPECT]
    alive.run()
    assert sorted(alive.handler.numbers()) == [0, 1]


def test_what_ran_before_its_node_knew_of_the_limit_counts(make_bus: MakeBus) -> None:
    handler = Recorder(hold=True)
    bus = make_bus(handler_threads=4)
    bus.subscribe(Order, handler, name="orders")
    bus.start()
    for number in range(2):
        bus.post(Order(number), limit_key="ann")
    handler.wait(2)

    bus.limit(per_key=3)
    for number in range(2, 6):
        bus.post(Order(number), limit_key="ann")
    handler.wait(3)
    eventually(lambda: any(is_keyed(one.lane) for one in bus.find()), "others wait for a place")

    assert handler.running == 3
    handler.release()
    ended(bus, 6)
    assert sorted(handler.numbers()) == list(range(6))


def test_what_was_born_claimed_before_its_node_knew_of_the_limit_waits_for_a_place(
    cluster: Cluster,
) -> None:
    one, other = cluster.join("a"), cluster.join("b")
    post(one, 0, 1, 2)
    assert claimed(one) == 3
    other.bus.limit(per_key=1)
    hear(cluster, one, other)

    one.lifecycle.pool.run_submitted()
    assert one.handler.calls == 0
    one.lifecycle.finisher.write_all()
    one.run()
    assert sorted(one.handler.numbers()) == [0, 1, 2]


def test_an_entry_needs_a_place_of_its_queue_and_one_of_its_key(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(concurrency=3, per_key=2)
    post(peer, 0, 1, 2, key="ann")
    post(peer, 3, 4, 5, key="bob")

    peer.claim()
    assert peer.numbers_held() == [0, 1, 3]
    for _ in range(6):
        peer.run()
        hear(cluster, peer)
        assert claimed(peer) <= 3
    assert sorted(peer.handler.numbers()) == list(range(6))
