"""Members of groups that are reaped, retried or discarded."""

from __future__ import annotations

from stickybus import ImmediateRetries
from tests.contract.cluster import Cluster
from tests.contract.groups.looks import (
    FAILED,
    FINISHED,
    SUCCEEDED,
    callbacks,
    counts,
    failing,
    open_group,
)
from tests.contract.harness import Order, Recorder


def test_the_copy_of_a_reaped_member_is_the_same_member(cluster: Cluster) -> None:
    dead, watcher = cluster.join("dead"), cluster.join("w")
    group = open_group(dead)
    dead.bus.post(Order(1), group=group)
    dead.bus.seal(group)
    dead.claim()
    cluster.bury("dead", watcher)
    assert counts(watcher, group) == (1, 0, 0, 0)
    cluster.live(40, watcher, step=3)
    watcher.run()
    assert counts(watcher, group) == (1, 1, 0, 0)
    assert callbacks(watcher) == [SUCCEEDED, FINISHED]


def test_a_failed_member_that_is_retried_in_time_counts_as_it_ends_then(cluster: Cluster) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    peer.handler = Recorder(failures=2)
    group = open_group(peer)
    peer.bus.post(Order(1), group=group)
    peer.run()
    for _ in range(2):
        assert counts(peer, group) == (1, 0, 1, 0)
        [failed] = peer.bus.dead_letters()
        peer.bus.retry(failed.record_id)
        assert counts(peer, group) == (1, 0, 0, 0)
        peer.run()
    peer.bus.seal(group)
    assert counts(peer, group) == (1, 1, 0, 0)
    assert callbacks(peer) == [SUCCEEDED, FINISHED]


def test_a_further_copy_of_a_member_that_lives_is_a_further_member(cluster: Cluster) -> None:
    peer = failing(cluster, 1)
    group = open_group(peer)
    first = peer.bus.post(Order(1), group=group)
    peer.run()
    peer.instead = None
    peer.bus.retry(first)
    peer.bus.retry(first, force=True)
    peer.bus.seal(group)
    assert counts(peer, group) == (2, 0, 0, 0)
    peer.run()
    assert counts(peer, group) == (2, 2, 0, 0)
    peer.bus.retry(first, force=True)
    assert counts(peer, group) == (2, 2, 0, 0)
    assert callbacks(peer) == [SUCCEEDED, FINISHED]


def test_a_retry_changes_nothing_of_a_complete_group(cluster: Cluster) -> None:
    peer = failing(cluster, 1)
    group = open_group(peer)
    first = peer.bus.post(Order(1), group=group)
    peer.bus.seal(group)
    peer.run()
    before = peer.bus.group_status(group)
    peer.instead = None
    peer.bus.retry(first)
    assert peer.bus.group_status(group) == before
    peer.run()
    assert peer.bus.group_status(group) == before
    assert callbacks(peer) == [FAILED, FINISHED]


def test_a_discarded_member_has_failed(cluster: Cluster) -> None:
    peer = failing(cluster, 1)
    group = open_group(peer)
    first = peer.bus.post(Order(1), group=group)
    peer.run()
    assert peer.bus.discard(first)
    peer.bus.seal(group)
    assert counts(peer, group) == (1, 0, 1, 0)
    assert callbacks(peer) == [FAILED, FINISHED]
