"""Entries that wait for others, from their post to their end."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from queue_core.model.lanes import WAITING_LANE
from queue_core.running.subscriber import EntryContext
from stickybus import Posting, State, inspect
from tests.contract.cluster import Cluster
from tests.contract.harness import Order, Recorder, database_of
from tests.contract.interrupted.statements import cut_at_each_statement
from tests.contract.waits.looks import ends, failing, ran, waiting, waits


def test_an_entry_runs_when_all_that_it_waits_for_have_ended(cluster: Cluster) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    first, second = (stranger.bus.post(Order(number)) for number in (1, 2))
    third = stranger.bus.post(Order(3), after=[first, second, first])
    fourth = stranger.bus.post(Order(4), after=[third])
    assert waiting(peer) == [third, fourth]
    assert {entry.lane for entry in peer.bus.find(states="WAITING")} == {WAITING_LANE}
    peer.run()
    cluster.live(4, peer)
    peer.run()
    assert sorted(ran(peer)[:2]) == [1, 2]
    assert ran(peer)[2:] == [3, 4]
    assert waits(peer) == 0
    assert peer.bus.find() == []
    assert all(entry.captured == {} for entry in peer.bus.history())


def test_a_single_wait_ends_in_the_transaction_of_what_it_waits_for(cluster: Cluster) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    first = stranger.bus.post(Order(1))
    stranger.bus.post(Order(2), after=[first])
    peer.run()
    assert ran(peer) == [1, 2]
    assert waits(peer) == 0


def test_an_entry_may_be_awaited_while_it_runs(cluster: Cluster) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    recorder = Recorder()

    def handle(order: Order, context: EntryContext) -> None:
        if order.number == 1:
            stranger.bus.post(Order(2), after=[context.record_id])
        recorder(order, context)

    peer.instead = handle
    stranger.bus.post(Order(1))
    peer.run()
    assert [order.number for order in recorder.events] == [1, 2]


def test_what_has_succeeded_is_not_waited_for(cluster: Cluster) -> None:
    peer = cluster.join("a")
    first = peer.bus.post(Order(1))
    peer.run()
    second = peer.bus.post(Order(2), after=[first])
    assert [entry.processing_state for entry in peer.bus.find()] == [State.AVAILABLE]
    peer.run()
    assert ends(peer) == {first: State.PROCESSED, second: State.PROCESSED}
    assert waits(peer) == 0


def test_history_may_be_truncated_while_entries_wait(cluster: Cluster) -> None:
    peer, recorder = failing(cluster, 1)
    stranger = cluster.peer("stranger")
    first, other = stranger.bus.post(Order(1)), stranger.bus.post(Order(9), delay=30)
    held = stranger.bus.post(Order(2), after=[first], on_failed="hold")
    both = stranger.bus.post(Order(3), after=[first, other], on_failed="run")
    peer.run()
    peer.bus.truncate_history()
    assert waiting(peer) == [held, both]
    cluster.live(40, peer, step=3)
    peer.run()
    cluster.live(4, peer)
    peer.run()
    assert [order.number for order in recorder.events] == [1, 9, 3]
    assert waiting(peer) == [held]


def test_a_process_of_an_older_version_may_end_what_is_waited_for(cluster: Cluster) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    first = stranger.bus.post(Order(1))
    stranger.bus.post(Order(2), after=[first])
    statements = peer.store.statements
    values = {"processing_state": "PROCESSED", "finished_date": cluster.clock.now()}
    peer.store.database.write(
        lambda connection: statements.to_history(connection, ids=[first], values=values)
    )
    peer.run()
    assert ran(peer) == []
    cluster.live(700, peer, step=5)
    peer.run()
    assert ran(peer) == [2]


@pytest.mark.parametrize("runs", [True, False], ids=["a node", "a process that only posts"])
def test_posts_in_callers_transactions_wait_too(cluster: Cluster, *, runs: bool) -> None:
    peer = cluster.join("a")
    poster = peer if runs else cluster.peer("stranger")
    done = poster.bus.post(Order(0))
    peer.run()
    with database_of(poster.bus).begin() as connection:
        first = poster.bus.post(Order(1), connection=connection)
        second = poster.bus.post(Order(2), after=[done, first], connection=connection)
        poster.bus.post(Order(3), after=[second], connection=connection)
    for _ in range(3):
        peer.run()
        cluster.live(4, peer)
    assert ran(peer) == [0, 1, 2, 3]
    assert waits(peer) == 0


def test_a_rolled_back_transaction_leaves_nothing(cluster: Cluster) -> None:
    peer = cluster.join("a")
    first = peer.bus.post(Order(1), delay=3)
    with database_of(peer.bus).engine.connect() as connection:
        peer.bus.post(Order(2), after=[first], connection=connection)
        connection.rollback()
    assert (waiting(peer), waits(peer)) == ([], 0)


def test_an_entry_that_has_lost_its_row_is_found_and_can_be_released(cluster: Cluster) -> None:
    peer = cluster.join("a")
    first = peer.bus.post(Order(1), delay=600)
    lost = peer.bus.post(Order(2), after=[first])
    peer.bus.post(Order(3), after=[first])
    peer.bus.post_many([Posting(event=Order(number), order_key="k") for number in (4, 5)])
    delete = text("DELETE FROM queue_waits WHERE waiter_id = :id")
    peer.store.database.write(lambda connection: connection.execute(delete, {"id": lost}))

    def found() -> list[str]:
        with inspect(cluster.url) as inspector:
            return [one.cure for one in inspector.doctor() if one.check == "lost-waits"]

    [cure] = found()
    assert f"entries release {lost} " in cure
    assert peer.bus.release(lost)
    assert found() == []
    [ordered] = [one for one in peer.bus.find(states="WAITING") if "!order" in (one.headers or "")]
    assert not peer.bus.release(ordered.record_id)


@pytest.mark.parametrize("lent", [True, False], ids=["in a transaction", "alone"])
def test_a_post_that_is_interrupted_at_any_statement_leaves_nothing(
    cluster: Cluster, *, lent: bool
) -> None:
    peer = cluster.join("a")
    database = database_of(peer.bus)
    first = peer.bus.post(Order(1), delay=60)

    def post() -> None:
        if not lent:
            peer.bus.post(Order(2), after=[first])
            return
        with database.begin() as connection:
            peer.bus.post(Order(2), after=[first], connection=connection)

    def check() -> None:
        assert ([one.record_id for one in peer.bus.find()], waits(peer)) == ([first], 0)

    places = cut_at_each_statement(database.engine, post, check)
    assert places >= (3 if lent else 6)
    assert (len(peer.bus.find()), waits(peer)) == (2, 1)
