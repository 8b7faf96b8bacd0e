"""The entries that a node leaves, and the sweep of its own lane."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy.exc import SQLAlchemyError

from queue_core.model.lanes import PARKED, Lane
from sql.statements import nodes
from stickybus import Posting, State
from tests.contract.cluster import Cluster, born_claimed, sample
from tests.contract.harness import Order, Recorder, engine_of, lost_answers, moving
from tests.contract.nodes.reaped import live_orders, processed, reaped

# -- what it leaves -------------------------------------------------------------------------------


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
    # Older than all thresholds at the reap.
    other.bus.post_many([Order(number) for number in range(100, 120)])

    cluster.bury("a", other)

    assert live_orders(reaped(other)) == [f'{{"number":{number}}}' for number in range(3)]
    assert len(other.bus.find(states=[State.IN_PROCESSING])) == 20


def test_entries_of_an_owner_that_has_no_node_row_are_found(cluster: Cluster) -> None:
    other = cluster.join("b")
    born_claimed(engine_of(other.bus), "ghost", 1)

    cluster.live(21, other, step=3.0)  # a lease, and a look before and after it

    assert cluster.row("ghost").state == nodes.DEAD
    other.run()
    assert other.handler.numbers() == [1]


def test_an_entry_that_commits_after_its_node_has_stopped_is_found(cluster: Cluster) -> None:
    stopped, other = cluster.join("a"), cluster.join("b")
    cluster.live(3, stopped, other)
    stopped.lifecycle.membership.leave()
    born_claimed(engine_of(stopped.bus), "a", 1)

    cluster.bury("a", other)
    other.run()
    born_claimed(engine_of(stopped.bus), "a", 2)  # the node is known as dead by now
    cluster.tick(3, other)
    other.run()

    assert other.handler.numbers() == [1, 2]


def test_parked_entries_are_no_node_and_are_not_reaped(cluster: Cluster) -> None:
    other = cluster.join("b")
    born_claimed(engine_of(other.bus), "ghost", 1, lane=PARKED)

    cluster.live(20, other, step=3.0)

    assert reaped(other) == []


def test_reaped_entries_are_counted(cluster: Cluster) -> None:
    labels = {"table": "bus_events", "queue_name": "bus"}
    killed, other = cluster.join("a"), cluster.join("b")
    killed.bus.post_many([Order(1), Order(2)])
    before = sample("entries_reaped_total", labels)

    cluster.bury("a", other)

    assert sample("entries_reaped_total", labels) == before + 2


# -- the own lane --------------------------------------------------------------------------------


def test_a_commit_of_unknown_outcome_is_found_by_the_sweep_and_delivered_once(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a")
    [record_id] = born_claimed(engine_of(peer.bus), "a", 1)

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
