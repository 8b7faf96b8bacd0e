"""Entries of one limit key start no faster than at its rate."""

from __future__ import annotations

from datetime import timedelta

from tests.contract.cluster import Cluster
from tests.contract.harness import database_of, meanwhile, statements_of
from tests.contract.limiting.key_looks import ANN, go_round, hear, lanes, post


def test_entries_of_a_key_start_at_its_rate(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(rate_per_key=1, per=timedelta(seconds=10), burst_per_key=2)
    post(peer, *range(5), key="ann")
    post(peer, 10, key="bob")
    peer.run()
    assert sorted(peer.handler.numbers()) == [0, 1, 10]

    hear(cluster, peer, seconds=9)
    peer.run()
    assert len(peer.handler.numbers()) == 3
    for started in (4, 5, 6, 6):
        hear(cluster, peer, seconds=10)
        peer.run()
        assert len(peer.handler.numbers()) == started
    assert sorted(peer.handler.numbers()) == [0, 1, 2, 3, 4, 10]


def test_what_a_node_waits_for_that_has_died_is_known_to_the_others(cluster: Cluster) -> None:
    dead, alive = cluster.join("a"), cluster.join("b")
    dead.bus.limit(rate_per_key=1, per=timedelta(seconds=40))
    hear(cluster, dead, alive)
    post(dead, 0, 1)
    dead.run()
    assert dead.handler.numbers() == [0]

    cluster.bury("a", alive)
    for _ in range(5):
        hear(cluster, alive, seconds=9)
        alive.run()
    assert alive.handler.numbers() == [1]


def test_a_round_reads_no_keys_that_wait_for_their_rate(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(rate_per_key=1, per=timedelta(days=1))
    post(peer, 0, 1)
    post(peer, 2, key="of one entry, which has started")
    peer.run()
    go_round(cluster, peer)
    with statements_of(peer.store.database) as statements:
        go_round(cluster, peer)
    assert any("queue_limit_keys" in text for text in statements.texts)
    assert not any("queue_places" in text for text in statements.texts)
    assert lanes(peer) == [ANN]


def test_a_changed_rate_holds_at_once(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(rate_per_key=1, per=timedelta(days=1))
    post(peer, *range(5))
    peer.run()
    assert peer.handler.numbers() == [0]

    peer.bus.limit(per_key=2)
    peer.run()
    assert sorted(peer.handler.numbers()) == list(range(5))


def test_a_higher_rate_holds_at_once(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(rate_per_key=1, per=timedelta(days=1))
    post(peer, *range(5))
    peer.run()
    assert peer.handler.numbers() == [0]

    peer.bus.limit(rate_per_key=1, per=timedelta(seconds=10))
    for started in range(2, 5):
        peer.run()
        assert len(peer.handler.numbers()) == started
        hear(cluster, peer, seconds=10)


def test_a_rate_that_changes_while_the_keys_are_looked_at_holds_at_once(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(rate_per_key=1, per=timedelta(days=1))
    post(peer, *range(5))
    peer.run()
    cluster.live(15, peer)

    with meanwhile(database_of(peer.bus), "queue_limit_keys", lambda: peer.bus.limit(per_key=2)):
        peer.lifecycle.limited.keys.turn(cluster.clock.monotonic())
    peer.run()
    assert sorted(peer.handler.numbers()) == list(range(5))


def test_an_end_lets_nobody_go_whom_the_rate_refuses(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(per_key=3, rate_per_key=1, per=timedelta(seconds=30))
    post(peer, *range(3))
    peer.run()
    assert peer.handler.numbers() == [0]
    assert lanes(peer) == [ANN] * 2
