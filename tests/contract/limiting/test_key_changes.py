"""Limits of keys that change, end, or of which nothing is left."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine

from queue_core.storage import key_places
from tests.contract.cluster import Cluster
from tests.contract.limiting.key_looks import ANN, go_round, keys_with_rows, lanes, post


def test_a_raised_limit_lets_more_go_and_a_lowered_one_lets_what_runs_finish(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(per_key=1)
    post(peer, *range(8))
    peer.claim()
    assert peer.numbers_held() == [0]

    peer.bus.limit(per_key=3)
    peer.claim()
    assert peer.numbers_held() == [0, 1, 2]

    peer.bus.limit(per_key=1)
    go_round(cluster, peer)
    peer.claim()
    assert peer.numbers_held() == [0, 1, 2]
    peer.lifecycle.pool.run_submitted()
    peer.lifecycle.finisher.write_all()
    peer.claim()
    assert len(peer.numbers_held()) == 1
    peer.run()
    assert sorted(peer.handler.numbers()) == list(range(8))


def test_without_the_limit_all_that_waited_runs(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(per_key=1)
    post(peer, *range(5))
    peer.claim()
    assert lanes(peer) == [ANN] * 4

    assert peer.bus.unlimit()
    peer.claim()
    assert peer.numbers_held() == list(range(5))
    peer.run()
    go_round(cluster, peer)
    assert keys_with_rows(peer) == set()


def test_all_that_waited_runs_page_by_page(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_places, "PAGE", 2)
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(per_key=1)
    post(peer, *range(8))
    peer.claim()
    assert peer.bus.unlimit()
    for _ in range(4):
        peer.claim()
        cluster.clock.advance(seconds=0.1)
    assert peer.numbers_held() == list(range(8))


def test_a_limit_of_keys_leaves_the_queue_unlimited(cluster: Cluster) -> None:
    peer = cluster.join("a", handler_threads=10)
    peer.bus.limit(concurrency=1)
    peer.bus.limit(per_key=1)
    for number in range(3):
        post(peer, number, key=str(number))
    peer.claim()
    assert len(peer.numbers_held()) == 3


def test_a_key_goes_on_after_its_entry_was_deleted_by_hand(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1)
    post(peer, 0, 1)
    peer.claim()
    engine = create_engine(peer.store.database.url)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "DELETE FROM bus_events WHERE processing_state = 'IN_PROCESSING'"
        )
    engine.dispose()

    go_round(cluster, peer)
    peer.run()
    assert peer.handler.numbers() == [0, 1]  # the first from memory


def test_a_key_of_which_nothing_is_left_is_forgotten(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1)
    post(peer, 0, 1)
    peer.run()
    assert keys_with_rows(peer) == {ANN}
    go_round(cluster, peer)
    assert keys_with_rows(peer) == set()


def test_a_key_of_which_something_waits_is_not_forgotten(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.limit(per_key=1)
    post(peer, 0, 1)
    peer.claim()
    go_round(cluster, peer)
    assert keys_with_rows(peer) == {ANN}
