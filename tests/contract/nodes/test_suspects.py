"""Suspects: entries that may have taken their process down."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from queue_core.model.lanes import PARKED, SUSPECT
from sql.statements import nodes
from stickybus import Posting, State
from tests.contract.cluster import Cluster, Peer, born_claimed
from tests.contract.harness import Order, Recorder, engine_of
from tests.contract.nodes.reaped import live_orders, processed, reaped


def restart(cluster: Cluster, peer: Peer, **settings: object) -> Peer:
    """The next process of the same name, after a crash; a lease has passed since it started."""
    cluster.vanish(peer)
    cluster.change_row(peer.node.name, pid=2**22)
    again = cluster.join(peer.node.name, **settings)
    cluster.live(18, again, step=3)
    return again


def crash(cluster: Cluster, number: int, watcher: Peer) -> Peer:
    """A new node claims what it gets and dies of it."""
    peer = cluster.join(f"victim-{number}")
    peer.claim()
    cluster.bury(f"victim-{number}", watcher)
    cluster.live(18, watcher, step=3)
    return peer


def test_an_entry_whose_process_keeps_dying_ends_failed_with_the_reason_and_its_payload(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a")
    record_id = peer.bus.post(Order(1), search_key1=5)
    crashes = 0
    while not peer.bus.history(states=[State.FAILED]):
        assert peer.claim(), "the entry is gone"
        peer = restart(cluster, peer)
        crashes += 1
        assert crashes < 20

    [failed] = peer.bus.history(states=[State.FAILED])
    assert crashes == 1 + 6  # the first, in company, and more than five alone
    assert (failed.last_error or "").startswith("PoisonEntry: ")
    assert (failed.event_json, failed.search_key1, failed.origin_id) == (
        '{"number":1}',
        5,
        record_id,
    )
    assert peer.bus.find() == []


def test_a_suspect_that_took_its_process_down_again_leaves_the_next_ones_a_lease_for_others(
    cluster: Cluster,
) -> None:
    watcher = cluster.join("w")
    watcher.bus.post(Order(1))
    watcher = restart(cluster, watcher)  # the first crash makes it a suspect, which runs at once
    assert watcher.claim()
    cluster.vanish(watcher)
    cluster.change_row("w", pid=2**22)
    watcher = cluster.join("w")
    stranger = cluster.peer("stranger").bus
    stranger.post(Order(2))

    watcher.run()
    assert watcher.handler.numbers() == [2]

    cluster.live(18, watcher, step=3)
    watcher.run()
    assert watcher.handler.numbers() == [1, 2]


def test_a_poison_entry_ends_also_when_each_crash_is_found_by_a_reaper(cluster: Cluster) -> None:
    watcher = cluster.join("w", max_redispatches=1)
    first = cluster.join("a")
    first.bus.post(Order(1))
    cluster.bury("a", watcher)

    for number in range(2):
        assert watcher.bus.history(states=[State.FAILED]) == []
        crash(cluster, number, watcher)

    assert [entry.processing_state for entry in watcher.bus.history()] == [State.REAPED] * 2 + [
        State.FAILED
    ]


def test_innocent_neighbours_of_a_poison_entry_are_all_processed(cluster: Cluster) -> None:
    peer = cluster.join("a", max_redispatches=2, handler_threads=5)
    peer.bus.post_many([Order(number) for number in range(5)])  # number 3 kills its process
    peer = restart(cluster, peer, max_redispatches=2, handler_threads=5)
    done = list[int]()
    for _ in range(20):
        if not peer.claim():
            break
        [number] = peer.numbers_held()  # one suspect at a time
        if number == 3:
            peer = restart(cluster, peer, max_redispatches=2, handler_threads=5)
        else:
            peer.lifecycle.run_due()
            done.append(number)

    assert sorted(done) == [0, 1, 2, 4]
    assert live_orders(processed(peer)) == [f'{{"number":{number}}}' for number in (0, 1, 2, 4)]
    assert {entry.redispatch_count for entry in processed(peer)} == {1}
    [failed] = peer.bus.history(states=[State.FAILED])
    assert failed.event_json == '{"number":3}'


def test_what_only_waited_when_its_node_died_is_no_suspect(cluster: Cluster) -> None:
    killed, other = cluster.join("a", mode="STICKY_POLLING"), cluster.join("b")
    killed.bus.post_many([Order(number) for number in range(3)])

    cluster.bury("a", other)

    assert {entry.lane for entry in other.bus.find()} == {""}
    assert len(other.claim()) == 3


def test_of_a_large_backlog_only_what_may_have_started_is_suspect(cluster: Cluster) -> None:
    killed, other = cluster.join("a", handler_threads=4), cluster.join("b", handler_threads=4)
    killed.bus.post_many([Order(number) for number in range(50)])
    first = sorted(entry.record_id for entry in killed.bus.find())[:4]

    cluster.bury("a", other)

    suspects = [entry for entry in other.bus.find() if entry.lane == SUSPECT]
    assert sorted(entry.origin_id or 0 for entry in suspects) == first
    assert {entry.crash_count for entry in suspects} == {1}
    assert {entry.lane for entry in other.bus.find()} == {SUSPECT, ""}


def test_what_a_second_process_held_when_it_died_is_suspect_wherever_it_stood(
    cluster: Cluster,
) -> None:
    """So that one which was not found at the first time does not kill for ever."""
    killed, second = cluster.join("a", handler_threads=1), cluster.join("b", handler_threads=1)
    killed.bus.post_many([Order(number) for number in range(3)])
    cluster.bury("a", second)
    assert len(second.claim()) == 3
    third = cluster.join("c", handler_threads=1)

    cluster.bury("b", third)

    assert sorted(entry.crash_count for entry in third.bus.find()) == [1, 1, 2]
    assert {entry.lane for entry in third.bus.find()} == {SUSPECT}


def test_what_is_left_by_stops_in_order_is_never_suspect(cluster: Cluster) -> None:
    """A long job over more deploys than it may crash; each node stops before the job has ended."""
    watcher = cluster.join("w")
    watcher.bus.subscribe("Other", Recorder())
    peer = cluster.join("d0")
    peer.bus.post(Order(1))
    for number in range(8):
        peer.claim()
        node = peer.node
        node.stop()
        while cluster.row(node.name).state != nodes.GONE:
            cluster.tick(3, watcher)
        cluster.tick(3, watcher)
        [entry] = watcher.bus.find()
        assert (entry.crash_count, entry.lane) == (0, "")
        peer = cluster.join(f"d{number + 1}")

    late = born_claimed(engine_of(watcher.bus), "d0", 2)  # a caller's commit long after the stop
    cluster.live(18, watcher, step=3)
    assert {entry.crash_count for entry in watcher.bus.find()} == {0}
    assert late[0] in {entry.record_id for entry in reaped(watcher)}


def test_a_suspect_that_is_left_by_stops_in_order_is_a_suspect_still_and_no_crash_is_counted(
    cluster: Cluster,
) -> None:
    """Its handler outlives more deploys than it may crash."""
    watcher, killed = cluster.join("w"), cluster.join("a")
    watcher.bus.subscribe("Other", Recorder())
    killed.bus.post(Order(1))
    killed.claim()
    cluster.bury("a", watcher)
    for number in range(8):
        peer = cluster.join(f"d{number}")
        assert len(peer.claim()) == 1
        peer.node.stop()
        while cluster.row(peer.node.name).state != nodes.GONE:
            cluster.tick(3, watcher)
        cluster.tick(3, watcher)
        [entry] = watcher.bus.find()
        assert (entry.crash_count, entry.lane) == (1, SUSPECT)


def test_a_name_taken_again_after_a_stop_in_order_finds_no_suspects(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.post(Order(1))
    peer.node.stop()
    cluster.vanish(peer)

    again = cluster.join("a")

    [entry] = again.bus.find()
    assert (entry.crash_count, entry.lane) == (0, "")


def test_a_suspect_that_fails_in_its_handler_stays_a_suspect_until_it_has_ended(
    cluster: Cluster,
) -> None:
    killed, other = cluster.join("a"), cluster.join("b")
    killed.bus.post_many([Order(1), Order(2)])
    cluster.bury("a", other)
    other.handler = Recorder(failures=1)

    other.lifecycle.run_due()  # the first fails and is to run again

    assert {entry.lane for entry in other.bus.find()} == {SUSPECT}
    assert len(other.claim()) == 1
    other.run()
    assert other.handler.numbers()[1:] in ([1, 2], [2, 2])
    assert len(processed(other)) == 2


def test_suspects_that_nobody_knew_are_suspects_still_when_somebody_does(cluster: Cluster) -> None:
    killed, other, handler = cluster.join("a"), cluster.join("b"), Recorder()
    killed.bus.subscribe("Invoice.paid", Recorder())
    killed.bus.post_many([Posting(event={}, event_name="Invoice.paid") for _ in range(2)])
    cluster.bury("a", other)
    other.run()
    assert {entry.lane for entry in other.bus.find()} == {PARKED}

    other.bus.subscribe("Invoice.paid", handler)

    assert other.claim() == []  # brings them back
    assert {entry.lane for entry in other.bus.find()} == {SUSPECT}
    assert len(other.claim()) == 1
    other.run()
    assert handler.calls == 2


def test_a_suspect_whose_claim_gave_no_answer_is_a_suspect_still(cluster: Cluster) -> None:
    killed, other = cluster.join("a"), cluster.join("b")
    killed.bus.post(Order(1))
    cluster.bury("a", other)
    claim = other.moves.claim

    def unanswered(*arguments: Any) -> None:
        assert claim(*arguments)
        raise OperationalError("claim", {}, ConnectionError("lost"))

    vars(other.moves)["claim"] = unanswered
    with pytest.raises(OperationalError):
        other.claim()
    del vars(other.moves)["claim"]
    other.lifecycle.claim_loop.turn()

    [entry] = other.bus.find()
    assert (entry.lane, entry.processing_state) == (SUSPECT, State.AVAILABLE)
