"""Retries of entries with an order key that others wait for: nothing ever waits for itself."""

from __future__ import annotations

from typing import Any

import pytest

from queue_core.reading.live_entries import Entries
from stickybus import Fail, State
from tests.contract.cluster import Cluster, Peer
from tests.contract.harness import Order, database_of
from tests.contract.order_looks import post, rows
from tests.contract.waits.looks import reasons, settle, waiting, waits


class Failures:
    """A handler that fails once for each of some orders."""

    def __init__(self, *numbers: int) -> None:
        self.left = list(numbers)
        self.events = list[int]()

    def __call__(self, order: Order, _context: object) -> Fail | None:
        self.events.append(order.number)
        if order.number not in self.left:
            return None
        self.left.remove(order.number)
        return Fail("not yet")


def join(cluster: Cluster, *failing: int) -> tuple[Peer, list[int]]:
    peer, handler = cluster.join("a"), Failures(*failing)
    peer.instead = handler
    return peer, handler.events


def all_is_over(peer: Peer) -> None:
    assert peer.bus.find() == []
    assert (rows(peer), waits(peer)) == ((0, 0), 0)


@pytest.mark.parametrize("inside", [False, True], ids=["own", "caller's"])
def test_a_retry_runs_before_one_of_its_key_that_waits_for_it(
    cluster: Cluster, *, inside: bool
) -> None:
    peer, ran = join(cluster, 1)
    [first] = post(peer, 1, order_failure="skip")
    [second, third] = post(peer, 2, after=[first], on_failed="hold") + post(peer, 3)
    peer.run()
    assert waiting(peer) == [second, third]
    if inside:
        with database_of(peer.bus).begin() as connection:
            copy = peer.bus.retry(first, connection=connection)
    else:
        copy = peer.bus.retry(first)
    assert reasons(peer.bus, second)[-1] == ("waits-for-entry", copy)
    settle(cluster, peer)
    assert ran == [1, 1, 2, 3]
    all_is_over(peer)


def test_a_retry_runs_before_one_of_its_key_that_waits_for_it_by_way_of_others(
    cluster: Cluster,
) -> None:
    peer, ran = join(cluster, 1)
    [first] = post(peer, 1, order_failure="skip")
    post(peer, 2, key="j", after=[first], on_failed="hold")
    [third] = post(peer, 3, key="j")
    post(peer, 4, after=[third])
    post(peer, 5)
    peer.run()
    assert ran == [1]
    peer.bus.retry(first)
    settle(cluster, peer)
    assert ran[:2] == [1, 1]
    assert ran.index(2) < ran.index(3) < ran.index(4) < ran.index(5)
    all_is_over(peer)


def test_a_retry_follows_the_head_that_runs_and_goes_before_what_waits_behind_it(
    cluster: Cluster,
) -> None:
    peer, ran = join(cluster, 1)
    [first] = post(peer, 1, order_failure="skip")
    peer.run()
    [head] = post(peer, 2, delay=3)
    [waiter, last] = post(peer, 3, after=[first], on_failed="hold") + post(peer, 4)
    copy = peer.bus.retry(first)
    assert reasons(peer.bus, copy) == [("behind-another", head)]
    assert waiting(peer) == [waiter, last, copy]
    settle(cluster, peer)
    assert ran == [1, 2, 1, 3, 4]
    all_is_over(peer)


def test_retries_of_several_at_once_keep_their_order_and_so_do_later_posts(
    cluster: Cluster,
) -> None:
    peer, ran = join(cluster, 1, 2, 3)
    failed = [post(peer, number, order_failure="skip")[0] for number in (1, 2, 3)]
    post(peer, 4, after=failed, on_failed="hold")
    post(peer, 5)
    peer.run()
    assert ran == [1, 2, 3]
    assert peer.bus.retry_all().changed == 3
    post(peer, 6)
    post(peer, 7)
    settle(cluster, peer)
    assert ran == [1, 2, 3, 1, 2, 3, 4, 5, 6, 7]
    all_is_over(peer)


def test_a_removed_one_and_its_retry_that_fails_are_retried_in_the_same_way(
    cluster: Cluster,
) -> None:
    peer, ran = join(cluster, 2)
    post(peer, 1, delay=3)
    [removed] = post(peer, 2, order_failure="skip")
    [waiter] = post(peer, 3, after=[removed], on_failed="hold")
    assert peer.bus.remove_all(record_ids=[removed]).changed == 1
    copy = peer.bus.retry(removed)
    settle(cluster, peer)
    assert ran == [1, 2]
    assert reasons(peer.bus, waiter) == [("dependency-failed", copy)]
    peer.bus.retry(removed)
    settle(cluster, peer)
    assert ran == [1, 2, 2, 3]
    all_is_over(peer)


def test_a_discarded_failure_that_is_retried_after_all_runs_before_who_waits_for_it(
    cluster: Cluster,
) -> None:
    peer, ran = join(cluster, 1)
    [first] = post(peer, 1)
    post(peer, 2, after=[first], on_failed="hold")
    peer.run()
    assert peer.bus.discard(first)
    settle(cluster, peer)
    peer.bus.retry(first)
    settle(cluster, peer)
    assert ran == [1, 1, 2]
    all_is_over(peer)


def test_a_retry_that_nobody_waits_for_runs_behind_the_others(cluster: Cluster) -> None:
    peer, ran = join(cluster, 1)
    [first] = post(peer, 1, order_failure="skip")
    [released] = post(peer, 2, after=[first], on_failed="hold")
    peer.run()
    post(peer, 3, delay=3)
    post(peer, 4)
    assert peer.bus.release(released)
    peer.bus.retry(first)
    settle(cluster, peer)
    assert ran == [1, 2, 3, 4, 1]
    all_is_over(peer)


@pytest.mark.parametrize("inside", [False, True], ids=["own", "caller's"])
def test_a_retry_that_only_a_removed_one_waited_for_runs_behind_the_others(
    cluster: Cluster, *, inside: bool
) -> None:
    peer, ran = join(cluster, 1)
    [first] = post(peer, 1, order_failure="skip")
    [removed] = post(peer, 2, after=[first], on_failed="hold")
    peer.run()
    post(peer, 3, delay=3)
    post(peer, 4)
    entries = Entries(peer.store, "bus")
    if inside:
        with database_of(peer.bus).begin() as connection:
            assert entries.remove(removed, connection=connection) == 1
            peer.bus.retry(first, connection=connection)
    else:
        assert entries.remove(removed) == 1
        peer.bus.retry(first)
    settle(cluster, peer)
    assert ran == [1, 3, 4, 1]
    all_is_over(peer)


@pytest.mark.parametrize("key", [None, "k"])
def test_one_that_was_posted_after_the_failure_waits_for_the_retry(
    cluster: Cluster, key: str | None
) -> None:
    peer, ran = join(cluster, 1)
    skips: dict[str, Any] = {"order_failure": "skip"} if key else {}
    first = peer.bus.post(Order(1), order_key=key, **skips)
    peer.run()
    second = peer.bus.post(Order(2), order_key=key, after=[first], on_failed="hold")
    peer.run()
    assert reasons(peer.bus, second) == [("dependency-failed", first)]
    copy = peer.bus.retry(first)
    assert reasons(peer.bus, second)[-1] == ("waits-for-entry", copy)
    settle(cluster, peer)
    assert ran == [1, 1, 2]
    assert {entry.processing_state for entry in peer.bus.history()} == {
        State.FAILED,
        State.PROCESSED,
    }
    all_is_over(peer)
