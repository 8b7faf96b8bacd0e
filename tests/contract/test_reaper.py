"""What a dead node leaves, who may call it dead, and what becomes of entries that kill their processes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import delete
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from queue_core.model.lanes import PARKED, SUSPECT, Lane
from sql.statements import nodes
from sql.tables import queue_nodes
from stickybus import Entry, Posting, State
from tests.contract.cluster import Cluster, Peer, born_claimed, cluster, sample
from tests.contract.harness import Order, Recorder, lost_answers, moving

__all__ = ["cluster"]


def reaped(peer: Peer) -> list[Entry]:
    return peer.bus.history(states=[State.REAPED])


def processed(peer: Peer) -> list[Entry]:
    return peer.bus.history(states=[State.PROCESSED])


def live_orders(entries: Sequence[Entry]) -> list[str]:
    return sorted(entry.event_json or "" for entry in entries)


# -- who is dead ----------------------------------------------------------------------------------------------------


def test_a_killed_nodes_entries_run_elsewhere_within_the_lease_and_one_reaper_period(
    cluster: Cluster,
) -> None:
    killed, other = cluster.join("a"), cluster.join("b")
    cluster.live(3, killed, other)
    killed.bus.post_many([Order(1), Order(2)])

    seconds = cluster.bury("a", other, step=1.0)
    other.run()

    assert 15 <= seconds <= 15 + 5
    assert other.handler.numbers() == [1, 2]
    assert killed.handler.calls == 0


def test_the_reaper_wakes_when_the_lease_of_a_silent_node_ends_and_not_a_period_later(
    cluster: Cluster,
) -> None:
    cluster.join("a")
    other = cluster.join("b")
    other.reap()
    for _ in range(4):
        cluster.clock.advance(seconds=3)
        other.beat()
    cluster.clock.advance(seconds=1)
    other.beat()

    assert other.reap() == pytest.approx(2)  # 13 of 15 seconds have passed, its period is 5


def test_a_living_node_is_never_declared_dead(cluster: Cluster) -> None:
    one, two = cluster.join("a"), cluster.join("b")

    cluster.live(60, one, two, step=3.0)

    assert {cluster.row(name).state for name in "ab"} == {nodes.LIVE}


def test_a_slow_handler_of_a_living_node_keeps_its_entry_however_long_it_takes(
    cluster: Cluster,
) -> None:
    slow, other = cluster.join("a"), cluster.join("b")
    slow.bus.post(Order(1))
    [held] = slow.claim()

    cluster.live(900, slow, other, step=6.0)  # past every age threshold

    assert reaped(other) == []
    assert other.run() == []
    assert [entry.record_id for entry in slow.bus.find(states=[State.IN_PROCESSING])] == [held]
    slow.run()
    assert [entry.processing_state for entry in slow.bus.history()] == [State.PROCESSED]


def test_after_an_outage_longer_than_the_lease_nobody_is_reaped_whoever_acts_first(
    cluster: Cluster,
) -> None:
    one, two = cluster.join("a"), cluster.join("b")
    one.bus.post(Order(1))
    cluster.live(9, one, two)

    cluster.clock.advance(seconds=60)  # no beat of anybody reached the database
    two.reap()
    two.beat()
    two.reap()
    cluster.clock.advance(seconds=5)
    two.beat()
    two.reap()
    one.beat()
    cluster.live(30, one, two)

    assert {cluster.row(name).state for name in "ab"} == {nodes.LIVE}
    assert reaped(one) == []


def test_a_node_that_died_in_an_outage_is_found_a_lease_after_it(cluster: Cluster) -> None:
    killed, other = cluster.join("a"), cluster.join("b")
    killed.bus.post(Order(1))
    cluster.live(9, killed, other)
    cluster.clock.advance(seconds=60)

    seconds = cluster.bury("a", other, step=1.0)

    assert 15 <= seconds <= 15 + 5 + 1
    other.run()
    assert other.handler.numbers() == [1]


def test_a_reaper_that_has_just_begun_to_watch_waits_calmly_for_a_full_lease(
    cluster: Cluster,
) -> None:
    cluster.join("a")
    other = cluster.join("b")
    cluster.tick(3, other)

    cluster.clock.advance(seconds=60)
    other.beat()

    assert other.reap() >= 1  # it has seen that node silent for 63 seconds, itself steady for none
    assert cluster.row("a").state == nodes.LIVE


def test_a_reaper_whose_own_lease_is_over_moves_nothing(cluster: Cluster) -> None:
    killed, other = cluster.join("a"), cluster.join("b")
    killed.bus.post(Order(1))
    cluster.bury("a", other)
    killed.bus.post(Order(2))  # of a frozen process that does not know yet
    born_claimed(killed.bus._engine, "a", 3)

    cluster.clock.advance(seconds=14)
    other.reap()

    assert len(reaped(other)) == 1


def test_a_node_with_the_fewest_beats_allowed_still_finds_the_dead(cluster: Cluster) -> None:
    cluster.join("a")
    other = cluster.join("b", beat_interval_seconds=5)

    assert cluster.bury("a", other, step=5.0) <= 20


def test_a_beat_between_the_look_and_the_verdict_saves_the_node(cluster: Cluster) -> None:
    late, other = cluster.join("a"), cluster.join("b")
    cluster.live(12, other, step=3.0)
    seen = cluster.row("a")
    late.beat()

    fenced = other.store.database.write(
        lambda connection: nodes.Nodes().fence(connection, "a", epoch=seen.epoch, beat=seen.beat)
    )

    assert not fenced
    assert cluster.row("a").state == nodes.LIVE


def test_a_beat_after_one_whose_answer_was_lost_is_a_sign_of_life_of_its_own(
    cluster: Cluster,
) -> None:
    node, other = cluster.join("a"), cluster.join("b")
    cluster.live(3, node, other)
    with (
        lost_answers(node.node.database, "UPDATE queue_nodes", committed=True) as cut,
        pytest.raises(DBAPIError),
    ):
        node.beat()
    assert cut
    cluster.live(8, other)
    node.beat()

    cluster.live(12, other)  # 20 s after the one, and 12 of 15 after the other

    assert cluster.row("a").state == nodes.LIVE


# -- what it leaves -------------------------------------------------------------------------------------------------


def test_a_reaped_entry_is_in_history_and_its_copy_keeps_keys_tokens_payload_and_dates(
    cluster: Cluster,
) -> None:
    killed, other = cluster.join("a"), cluster.join("b")
    record_id = killed.bus.post(
        Order(1),
        search_key1=7,
        search_key2=8,
        user_token="user",
        future_user_token="future",
        headers={"traceparent": "00-1"},
    )
    [posted] = killed.bus.find()

    cluster.bury("a", other)

    [old] = reaped(other)
    [copy] = other.bus.find()
    assert (old.record_id, old.origin_id, old.finished_date) == (
        record_id,
        None,
        cluster.clock.now(),
    )
    assert copy.record_id > record_id
    assert (copy.origin_id, copy.redispatch_count, copy.processing_owner) == (record_id, 1, None)
    assert (copy.processing_state, copy.claim_count) == (State.AVAILABLE, 0)
    kept = (
        *(
            "queue_name",
            "class_name",
            "event_json",
            "codec",
            "user_token",
            "future_user_token",
            "search_key1",
        ),
        *(
            "search_key2",
            "created_date",
            "effective_date",
            "creating_owner",
            "error_count",
            "headers",
        ),
    )
    for name in kept:
        assert getattr(old, name) == getattr(posted, name), name
        assert getattr(copy, name) == getattr(posted, name), name
    other.run()
    [context] = other.handler.contexts
    assert (context.user_token, context.future_user_token, context.attempt) == ("user", "future", 2)


def test_every_link_of_a_chain_of_redispatches_names_its_first_entry(cluster: Cluster) -> None:
    watcher = cluster.join("w")
    first = cluster.join("a")
    record_id = first.bus.post(Order(1))
    cluster.bury("a", watcher)
    second = cluster.join("b")
    assert len(second.claim()) == 1
    cluster.bury("b", watcher)
    cluster.live(18, watcher, step=3)
    watcher.run()

    chain = watcher.bus.history()

    assert [entry.processing_state for entry in chain] == [
        State.REAPED,
        State.REAPED,
        State.PROCESSED,
    ]
    assert [entry.origin_id for entry in chain] == [None, record_id, record_id]
    assert [entry.redispatch_count for entry in chain] == [0, 1, 2]


def test_the_error_count_and_the_subscribers_that_succeeded_survive_a_redispatch(
    cluster: Cluster,
) -> None:
    killed, other = cluster.join("a"), cluster.join("b")
    for peer in (killed, other):
        peer.handler = Recorder(failures=1)
    audits = [Recorder(), Recorder()]
    for peer, audit in zip((killed, other), audits, strict=True):
        peer.bus.subscribe(Order, audit.events.append, name="audit")
    killed.bus.post(Order(1))
    killed.lifecycle.run_due()  # fails once, and is not tried again before the kill

    cluster.bury("a", other)
    other.run()

    assert audits[0].calls == 1
    assert audits[1].calls == 0
    [ended] = processed(other)
    assert ended.error_count == 2


def test_an_entry_not_yet_due_only_changes_its_lane(cluster: Cluster) -> None:
    killed, other = cluster.join("a"), cluster.join("b")
    due, later = (
        cluster.clock.now() + timedelta(seconds=2),
        cluster.clock.now() + timedelta(hours=1),
    )
    postings = [Posting(event=Order(1), at=due), Posting(event=Order(2), at=later)]
    rows = killed.store.rows.rows("bus", postings, creator="a", lane=Lane("a"), claimed=False)
    ids = killed.store.database.write(lambda connection: killed.store.insert(connection, rows))

    cluster.bury("a", other)

    assert [entry.record_id for entry in reaped(other)] == [ids[0]]
    by_id = {entry.record_id: entry for entry in other.bus.find()}
    assert by_id[ids[1]].lane == ""
    assert (by_id[ids[1]].origin_id, by_id[ids[1]].redispatch_count) == (None, 0)


def test_more_late_entries_than_a_batch_are_all_moved_in_one_turn(cluster: Cluster) -> None:
    killed, other = cluster.join("a"), cluster.join("b")
    killed.bus.post_many([Order(number) for number in range(35)])

    cluster.bury("a", other)

    assert len(reaped(other)) == 35  # batches of 10
    assert len(other.bus.find()) == 35


def test_late_entries_of_the_reaper_itself_starve_nobody_and_stay_its_own(cluster: Cluster) -> None:
    killed, other = cluster.join("a"), cluster.join("b")
    killed.bus.post_many([Order(number) for number in range(3)])
    other.bus.post_many(
        [Order(number) for number in range(100, 120)]
    )  # older than all thresholds at the reap

    cluster.bury("a", other)

    assert live_orders(reaped(other)) == [f'{{"number":{number}}}' for number in range(3)]
    assert len(other.bus.find(states=[State.IN_PROCESSING])) == 20


def test_two_reapers_at_once_make_one_copy_of_each_entry(cluster: Cluster) -> None:
    killed, *reapers = (cluster.join(name) for name in ("a", "b", "c"))
    killed.bus.post_many([Order(number) for number in range(45)])
    for peer in reapers:
        peer.reap()
    for _ in range(6):
        cluster.clock.advance(seconds=3)
        for peer in reapers:
            peer.beat()
    together = threading.Barrier(2)

    def reap(peer: Peer) -> None:
        together.wait(10)
        peer.reap()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(reap, reapers))
    reapers[0].reap()

    assert len(reaped(killed)) == 45
    copies = killed.bus.find()
    assert sorted(entry.origin_id or 0 for entry in copies) == [
        entry.record_id for entry in reaped(killed)
    ]
    for peer in reapers:
        peer.run()
    assert sorted(reapers[0].handler.numbers() + reapers[1].handler.numbers()) == list(range(45))


def test_entries_of_an_owner_that_has_no_node_row_are_found(cluster: Cluster) -> None:
    other = cluster.join("b")
    born_claimed(other.bus._engine, "ghost", 1)

    cluster.live(21, other, step=3.0)  # a lease, and a look before and after it

    assert cluster.row("ghost").state == nodes.DEAD
    other.run()
    assert other.handler.numbers() == [1]


def test_an_entry_that_commits_after_its_node_has_stopped_is_found(cluster: Cluster) -> None:
    stopped, other = cluster.join("a"), cluster.join("b")
    cluster.live(3, stopped, other)
    stopped.lifecycle.leave()
    born_claimed(stopped.bus._engine, "a", 1)

    cluster.bury("a", other)
    other.run()
    born_claimed(stopped.bus._engine, "a", 2)  # the node is known as dead by now
    cluster.tick(3, other)
    other.run()

    assert other.handler.numbers() == [1, 2]


def test_parked_entries_are_no_node_and_are_not_reaped(cluster: Cluster) -> None:
    other = cluster.join("b")
    born_claimed(other.bus._engine, "ghost", 1, lane=PARKED)

    cluster.live(20, other, step=3.0)

    assert reaped(other) == []


def test_the_row_of_a_dead_node_is_forgotten_after_a_day(cluster: Cluster) -> None:
    cluster.join("a")
    other = cluster.join("b")
    cluster.bury("a", other)

    cluster.clock.advance(seconds=86_400)
    other.beat()
    other.reap()

    known = other.store.database.fetch(nodes.Nodes().all_nodes)
    assert [row.name for row in known] == ["b"]


def test_reaped_entries_are_counted(cluster: Cluster) -> None:
    labels = {"table": "bus_events", "queue_name": "bus"}
    killed, other = cluster.join("a"), cluster.join("b")
    killed.bus.post_many([Order(1), Order(2)])
    before = sample("entries_reaped_total", labels)

    cluster.bury("a", other)

    assert sample("entries_reaped_total", labels) == before + 2


# -- the own lane ---------------------------------------------------------------------------------------------------


def test_a_commit_of_unknown_outcome_is_found_by_the_sweep_and_delivered_once(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a")
    [record_id] = born_claimed(peer.bus._engine, "a", 1)

    peer.run()
    cluster.clock.advance(seconds=3)
    peer.beat()
    peer.run()

    assert peer.handler.numbers() == [1]
    [ended] = peer.bus.history()
    assert (ended.record_id, ended.processing_state) == (record_id, State.PROCESSED)
    assert ended.claim_count == 3  # born with 1, raised by the sweep and by the claim


def test_a_claim_whose_commit_gave_no_answer_is_swept_at_once_and_runs_once(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a", mode="STICKY_POLLING")
    peer.run()  # and sweeps, for the first time
    peer.bus.post(Order(1))

    with (
        lost_answers(
            peer.store.database, moving(peer.store.database, "bus_events SET"), committed=True
        ) as cut,
        pytest.raises(SQLAlchemyError),
    ):
        peer.claim()
    for _ in range(2):
        peer.lifecycle.run_due()

    assert cut
    assert peer.handler.numbers() == [1]
    assert [entry.claim_count for entry in peer.bus.history()] == [3]


def test_the_sweep_leaves_alone_what_runs_here(cluster: Cluster) -> None:
    peer = cluster.join("a")
    [record_id] = [peer.bus.post(Order(1))]

    for _ in range(3):
        cluster.clock.advance(seconds=3)
        peer.beat()
        assert peer.claim() == [record_id]

    [entry] = peer.bus.find()
    assert (entry.processing_state, entry.claim_count) == (State.IN_PROCESSING, 1)


def test_a_restart_under_the_same_name_keeps_what_waited_and_redispatches_what_ran(
    cluster: Cluster,
) -> None:
    first = cluster.join("a", handler_threads=1, max_entries_claimed=1, mode="STICKY_POLLING")
    ids = first.bus.post_many([Order(number) for number in range(6)])
    held = first.claim()
    assert 0 < len(held) < 6
    cluster.vanish(first)
    cluster.change_row("a", pid=2**22)  # higher than any pid

    second = cluster.join("a")

    assert cluster.clock.monotonic() == 0
    assert [entry.record_id for entry in reaped(second)] == held
    waiting = {entry.record_id for entry in second.bus.find() if entry.lane == "a"}
    assert waiting == set(ids) - set(held)
    second.run()
    assert second.handler.numbers() == list(range(6))


# -- suspects -------------------------------------------------------------------------------------------------------


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
    """A long job over more deploys than it may crash; each node has stopped before the job had ended."""
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

    late = born_claimed(watcher.bus._engine, "d0", 2)  # a caller's commit long after the stop
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


def test_a_reaper_that_meets_a_broken_connection_goes_on_at_its_next_turn(cluster: Cluster) -> None:
    killed, other = cluster.join("a"), cluster.join("b")
    killed.bus.post(Order(1))
    cluster.live(15, other, step=3.0)
    table = other.store.statements.past.name
    rename = "ALTER TABLE {} RENAME TO {}"

    def run(statement: str) -> None:
        other.store.database.write(lambda connection: connection.exec_driver_sql(statement))

    run(rename.format(table, "moved_away"))
    try:
        with pytest.raises(Exception, match=table):
            cluster.tick(3, other)
    finally:
        run(rename.format("moved_away", table))
    assert len(other.bus.find()) == 1  # neither lost nor doubled

    cluster.tick(3, other)

    other.run()
    assert other.handler.numbers() == [1]


def test_a_live_node_whose_row_was_deleted_keeps_its_entries_and_enters_it_anew(
    cluster: Cluster,
) -> None:
    owner, other, dead = cluster.join("a"), cluster.join("b"), cluster.join("c")
    cluster.bury("c", owner, other)
    del dead  # its row stays for a day, and lanes are looked at in each turn
    owner.bus.post(Order(1))
    owner.store.database.write(
        lambda connection: connection.execute(delete(queue_nodes).where(queue_nodes.c.name == "a"))
    )

    cluster.tick(2.9, other)
    cluster.tick(2.9, other)
    assert other.bus.find()[0].processing_owner == "a"
    owner.beat()

    cluster.live(30, owner, other)
    assert cluster.row("a").state == nodes.LIVE
    owner.run()
    other.run()
    assert (owner.handler.numbers(), other.handler.numbers()) == ([1], [])
