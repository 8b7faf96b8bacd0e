"""When what is awaited fails, is removed or is reaped."""

from __future__ import annotations

import pytest

from queue_core.reading.live_entries import Entries
from stickybus import EntryNotFoundError, ImmediateRetries, Posting, State
from tests.contract.cluster import Cluster
from tests.contract.harness import Order, Recorder, database_of
from tests.contract.waits.looks import ends, failing, ran, settle, waiting, waits


@pytest.mark.parametrize("early", [True, False], ids=["posted before", "posted after"])
def test_a_failure_cancels_those_that_wait_and_those_that_wait_for_them(
    cluster: Cluster, *, early: bool
) -> None:
    peer, recorder = failing(cluster, 1)
    stranger = cluster.peer("stranger")
    first = stranger.bus.post(Order(1))
    if not early:
        peer.run()
    second = stranger.bus.post(Order(2), after=[first])
    third = stranger.bus.post(Order(3), after=[second])
    peer.run()
    assert [order.number for order in recorder.events] == [1]
    assert ends(peer) == {first: State.FAILED, second: State.REMOVED, third: State.REMOVED}
    errors = {entry.record_id: entry.last_error or "" for entry in peer.bus.history()}
    assert f"entry {first}," in errors[second]
    assert f"entry {second}," in errors[third]
    assert (peer.bus.find(), waits(peer)) == ([], 0)


def test_a_long_chain_is_cancelled_as_a_whole(cluster: Cluster) -> None:
    peer, _ = failing(cluster, 0)
    stranger = cluster.peer("stranger")
    last = first = stranger.bus.post(Order(0))
    for number in range(1, 30):
        last = stranger.bus.post(Order(number), after=[last])
    peer.run()
    assert set(ends(peer).values()) == {State.FAILED, State.REMOVED}
    assert len(ends(peer)) == 30
    assert (ends(peer)[first], waits(peer)) == (State.FAILED, 0)


def test_many_that_wait_for_one_are_released_in_several_looks(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queue_core.links.dependencies.BATCH", 3)
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    first = stranger.bus.post(Order(0))
    stranger.bus.post_many([Posting(event=Order(number), after=[first]) for number in range(1, 11)])
    for _ in range(8):
        peer.run()
        cluster.live(4, peer)
    assert sorted(ran(peer)) == list(range(11))
    assert waits(peer) == 0


def test_an_entry_may_run_though_what_it_waited_for_has_failed(cluster: Cluster) -> None:
    peer, recorder = failing(cluster, 1)
    stranger = cluster.peer("stranger")
    first = stranger.bus.post(Order(1))
    stranger.bus.post(Order(2), after=[first], on_failed="run")
    peer.run()
    stranger.bus.post(Order(3), after=[first], on_failed="run")
    peer.run()
    assert [order.number for order in recorder.events] == [1, 2, 3]
    assert waits(peer) == 0


def test_a_held_entry_waits_for_the_retry(cluster: Cluster) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    peer.handler = Recorder(failures=2)
    stranger = cluster.peer("stranger")
    first = stranger.bus.post(Order(1))
    second = stranger.bus.post(Order(2), after=[first], on_failed="hold")
    peer.run()
    cluster.live(4, peer)
    assert waiting(peer) == [second]
    copy = peer.bus.retry(first)
    peer.run()
    assert waiting(peer) == [second]
    peer.bus.retry(copy)
    peer.run()
    cluster.live(4, peer)
    peer.run()
    assert ran(peer) == [1, 1, 1, 2]
    assert waits(peer) == 0


def test_a_held_entry_can_be_released_and_removed(cluster: Cluster) -> None:
    peer, recorder = failing(cluster, 1)
    stranger = cluster.peer("stranger")
    first = stranger.bus.post(Order(1))
    second, third = (
        stranger.bus.post(Order(number), after=[first], on_failed="hold") for number in (2, 3)
    )
    peer.run()
    assert peer.bus.release(second)
    assert not peer.bus.release(second)
    assert Entries(peer.store, "bus").remove(third) == 1
    peer.run()
    assert [order.number for order in recorder.events] == [1, 2]
    assert ends(peer)[third] is State.REMOVED
    with pytest.raises(EntryNotFoundError):
        peer.bus.release(4711)


@pytest.mark.parametrize("how", ["own", "caller's", "forgotten"])
def test_a_held_entry_that_is_removed_waits_for_nothing(cluster: Cluster, how: str) -> None:
    peer, _ = failing(cluster, 1)
    first, still = peer.bus.post(Order(1)), peer.bus.post(Order(3), delay=3)
    held = peer.bus.post(Order(2), after=[first], on_failed="hold", search_key1="ann")
    other = peer.bus.post(Order(4), after=[first, still], on_failed="hold")
    settle(cluster, peer)
    if how == "caller's":
        entries = Entries(peer.store, "bus")
        with database_of(peer.bus).begin() as connection:
            assert entries.remove(held, connection=connection) == 1
        settle(cluster, peer)
    elif how == "own":
        assert peer.bus.remove_all(record_ids=[held]).changed == 1
    else:
        assert peer.bus.forget(search_key1="ann").live == 1
    assert waiting(peer) == [other]
    assert waits(peer) == 2


def test_the_removal_of_an_entry_cancels_those_that_wait(cluster: Cluster) -> None:
    peer = cluster.join("a")
    first = peer.bus.post(Order(1), delay=60)
    second = peer.bus.post(Order(2), after=[first], search_key1=7)
    third = peer.bus.post(Order(3), after=[second], on_failed="run")
    peer.bus.forget(search_key1=7)
    assert waiting(peer) == []
    peer.run()
    assert ran(peer) == [3]
    assert Entries(peer.store, "bus").remove(first) == 1
    assert ends(peer) == {first: State.REMOVED, third: State.PROCESSED}
    cluster.live(4, peer)
    peer.run()
    assert waits(peer) == 0


def test_the_copy_of_a_reaped_entry_is_waited_for(cluster: Cluster) -> None:
    dead, watcher = cluster.join("dead"), cluster.join("w")
    stranger = cluster.peer("stranger")
    first = stranger.bus.post(Order(1))
    second = stranger.bus.post(Order(2), after=[first])
    dead.claim()
    cluster.bury("dead", watcher)
    assert waiting(watcher) == [second]
    third = stranger.bus.post(Order(3), after=[first])  # by the id that it was posted under
    cluster.live(40, watcher, step=3)
    watcher.run()
    cluster.live(4, watcher)
    watcher.run()
    assert sorted(ran(watcher)) == [1, 2, 3]
    assert ran(watcher)[0] == 1
    assert ends(watcher)[third] is State.PROCESSED
    assert waits(watcher) == 0
