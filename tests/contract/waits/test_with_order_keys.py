"""Entries that have an order key, and wait for others besides."""

from __future__ import annotations

import pytest

from queue_core.reading.live_entries import Entries
from stickybus import ImmediateRetries, PersistentBus, Posting, State
from tests import requirements as needs
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder, database_of, elsewhere
from tests.contract.order_looks import post, rows
from tests.contract.waits.looks import ends, failing, ran, reasons, settle, waiting, waits
from tests.contract.waits.many_threads import THREADS, done_by_two


def test_it_keeps_its_place_in_its_key_and_those_behind_it_wait(cluster: Cluster) -> None:
    peer = cluster.join("a")
    first = peer.bus.post(Order(1), delay=3)
    second, third = post(peer, 2, after=[first]) + post(peer, 3)
    other = post(peer, 9, key="other")
    peer.run()
    assert ran(peer) == [9]
    assert waiting(peer) == [second, third]
    assert reasons(peer.bus, second) == [("waits-for-entry", first)]
    assert reasons(peer.bus, third) == [("behind-another", second)]
    settle(cluster, peer)
    assert ran(peer) == [9, 1, 2, 3]
    assert other
    assert (rows(peer), waits(peer)) == ((0, 0), 0)


def test_its_dependency_may_end_before_its_turn_and_after_it(cluster: Cluster) -> None:
    peer = cluster.join("a")
    late = peer.bus.post(Order(1), delay=3)
    [head] = post(peer, 2, delay=1)
    soon = peer.bus.post(Order(3))
    early, both = post(peer, 4, after=[soon]) + post(peer, 5, after=[late, head])
    assert reasons(peer.bus, both) == [
        ("behind-another", head),
        ("waits-for-entry", late),
        ("waits-for-entry", head),
    ]
    peer.run()
    assert ran(peer) == [3]
    assert reasons(peer.bus, early) == [("behind-another", head)]
    settle(cluster, peer)
    assert [number for number in ran(peer) if number != 1] == [3, 2, 4, 5]
    assert ran(peer).index(1) < ran(peer).index(5)
    assert (rows(peer), waits(peer)) == ((0, 0), 0)


def test_it_starts_in_the_transaction_in_which_its_only_dependency_ends(cluster: Cluster) -> None:
    peer = cluster.join("a")
    first = peer.bus.post(Order(1))
    post(peer, 2, after=[first])
    post(peer, 3)
    peer.run()
    assert ran(peer) == [1, 2, 3]
    assert (rows(peer), waits(peer)) == ((0, 0), 0)


def test_one_post_may_have_such_entries_among_others(cluster: Cluster) -> None:
    peer = cluster.join("a")
    done = peer.bus.post(Order(0))
    peer.run()
    first = peer.bus.post(Order(1))
    peer.bus.post_many(
        [
            Posting(event=Order(2), order_key="k", after=[first]),
            Posting(event=Order(3), order_key="k"),
            Posting(event=Order(4), order_key="j", after=[done]),
            Posting(event=Order(5), order_key="j", after=[first, done], key="once"),
            Posting(event=Order(6), after=[first]),
        ]
    )
    settle(cluster, peer)
    assert [number for number in ran(peer) if number in {1, 2, 3}] == [1, 2, 3]
    assert [number for number in ran(peer) if number in {1, 4, 5}] in ([1, 4, 5], [4, 1, 5])
    assert sorted(ran(peer)) == list(range(7))
    assert (rows(peer), waits(peer)) == ((0, 0), 0)


@pytest.mark.parametrize("early", [True, False], ids=["posted before", "posted after"])
@pytest.mark.parametrize("on_failed", ["cancel", "run", "hold"])
def test_the_failure_of_its_dependency(cluster: Cluster, on_failed: str, *, early: bool) -> None:
    peer, recorder = failing(cluster, 1)
    first = peer.bus.post(Order(1))
    if not early:
        peer.run()
    second, third = post(peer, 2, after=[first], on_failed=on_failed) + post(peer, 3)
    peer.run()
    ended = {record_id: state.value for record_id, state in ends(peer).items()}
    numbers = [order.number for order in recorder.events]
    match on_failed:
        case "cancel":  # it is left out
            assert ended == {first: "FAILED", second: "REMOVED", third: "PROCESSED"}
            assert numbers == [1, 3]
        case "run":
            assert ended == {first: "FAILED", second: "PROCESSED", third: "PROCESSED"}
            assert numbers == [1, 2, 3]
        case _:
            assert waiting(peer) == [second, third]
            assert reasons(peer.bus, second) == [("dependency-failed", first)]
            assert peer.bus.release(second)
            assert not peer.bus.release(second)
            peer.run()
            assert [order.number for order in recorder.events] == [1, 2, 3]
    assert (rows(peer), waits(peer)) == ((0, 0), 0)


def test_cancelled_ones_of_a_key_let_it_go_on_though_a_head_runs(cluster: Cluster) -> None:
    peer, recorder = failing(cluster, 1)
    first = peer.bus.post(Order(1), delay=1)
    post(peer, 2, delay=3)
    cancelled = post(peer, 3, after=[first]) + post(peer, 4, after=[first])
    post(peer, 5)
    settle(cluster, peer)
    assert [order.number for order in recorder.events] == [1, 2, 5]
    assert {ends(peer)[record_id] for record_id in cancelled} == {State.REMOVED}
    assert (rows(peer), waits(peer)) == ((0, 0), 0)


def test_a_retry_of_its_dependency_lets_it_run_in_its_place(cluster: Cluster) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    peer.handler = Recorder(failures=1)
    first = peer.bus.post(Order(1))
    [second, _] = post(peer, 2, after=[first], on_failed="hold") + post(peer, 3)
    peer.run()
    assert ran(peer) == [1]
    copy = peer.bus.retry(first)
    assert reasons(peer.bus, second) == [("waits-for-entry", copy)]
    settle(cluster, peer)
    assert ran(peer) == [1, 1, 2, 3]
    assert (rows(peer), waits(peer)) == ((0, 0), 0)


def test_a_cancelled_one_that_is_retried_runs_behind_the_others(cluster: Cluster) -> None:
    peer, recorder = failing(cluster, 1)
    first = peer.bus.post(Order(1))
    [second, _] = post(peer, 2, after=[first]) + post(peer, 3, delay=2)
    peer.run()
    peer.bus.retry(second)
    settle(cluster, peer)
    assert [order.number for order in recorder.events] == [1, 3, 2]
    assert (rows(peer), waits(peer)) == ((0, 0), 0)


def test_a_dependency_that_is_reaped_is_waited_for_as_its_copy(cluster: Cluster) -> None:
    dead, watcher = cluster.join("dead"), cluster.join("w")
    first = dead.bus.post(Order(1))
    dead.claim()
    post(watcher, 2, after=[first])
    post(watcher, 3)
    cluster.bury("dead", watcher)
    watcher.run()
    for _ in range(4):
        cluster.live(18, watcher, step=3)
        watcher.run()
    assert ran(watcher) == [1, 2, 3]
    assert (rows(watcher), waits(watcher)) == ((0, 0), 0)


def test_it_waits_over_a_restart_and_the_truncation_of_history(cluster: Cluster) -> None:
    peer, _ = failing(cluster, 1)
    first = peer.bus.post(Order(1))
    [second, _] = post(peer, 2, after=[first], on_failed="hold") + post(peer, 3)
    peer.run()
    cluster.tick(1, peer)
    assert peer.bus.truncate_history() == 1
    again = cluster.join("b")
    cluster.bury("a", again)
    settle(cluster, again)
    assert len(waiting(again)) == 2
    assert again.bus.release(second)
    for _ in range(4):  # they stood in the lane of the node that is gone
        cluster.live(18, again, step=3)
        again.run()
    assert ran(again) == [2, 3]
    assert (rows(again), waits(again)) == ((0, 0), 0)


def test_one_that_is_released_before_its_turn_runs_whatever_becomes_of_the_others(
    cluster: Cluster,
) -> None:
    peer, recorder = failing(cluster, 1)
    first = peer.bus.post(Order(1), delay=1)
    post(peer, 2, delay=3)
    [third] = post(peer, 3, after=[first])
    assert peer.bus.release(third)
    assert not peer.bus.release(third)
    settle(cluster, peer)
    assert [order.number for order in recorder.events] == [1, 2, 3]
    assert (rows(peer), waits(peer)) == ((0, 0), 0)


@pytest.mark.parametrize("runs", [True, False], ids=["a node", "a process that only posts"])
def test_callers_transactions_may_post_and_release_it(cluster: Cluster, *, runs: bool) -> None:
    peer = cluster.join("a")
    poster = peer if runs else cluster.peer("stranger")
    first = poster.bus.post(Order(0), delay=600)
    with database_of(poster.bus).begin() as connection:
        held = poster.bus.post(Order(1), order_key="k", after=[first], connection=connection)
        poster.bus.post(Order(2), order_key="k", connection=connection)
    settle(cluster, peer)
    assert ran(peer) == []
    with database_of(poster.bus).begin() as connection:
        assert poster.bus.release(held, connection=connection)
        if connection.dialect.name != "sqlite":
            elsewhere(peer.run)
    settle(cluster, peer)
    assert ran(peer) == [1, 2]
    assert rows(peer) == (0, 0)


@needs.many_writers
@pytest.mark.parametrize("commits", [True, False])
def test_an_open_transaction_that_removes_it_or_a_head_holds_up_nobody(
    cluster: Cluster, *, commits: bool
) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    first = peer.bus.post(Order(0), delay=600)
    [waits_for_first] = post(peer, 1, after=[first])
    post(peer, 2)
    [head] = post(peer, 3, key="j", delay=2)
    remove = Entries(stranger.store, "bus").remove
    with database_of(stranger.bus).engine.connect() as connection:
        assert remove(waits_for_first, connection=connection) == 1
        assert remove(head, connection=connection) == 1
        elsewhere(lambda: post(peer, 4, key="j"))
        elsewhere(lambda: post(peer, 5))
        elsewhere(lambda: settle(cluster, peer))
        assert ran(peer) == []
        connection.commit() if commits else connection.rollback()
    settle(cluster, peer)
    assert sorted(ran(peer)) == ([2, 4, 5] if commits else [3, 4])
    assert rows(peer) == ((0, 0) if commits else (3, 0))


@needs.many_writers
def test_a_caller_who_removes_a_head_need_not_see_what_was_posted_behind_it(
    cluster: Cluster,
) -> None:
    peer, stranger = cluster.join("a"), cluster.peer("stranger")
    [head] = post(peer, 1, delay=600)
    database = database_of(stranger.bus)
    with database.engine.connect().execution_options(
        isolation_level="REPEATABLE READ"
    ) as connection:
        stranger.bus.find(connection=connection)
        elsewhere(lambda: post(peer, 2))
        assert Entries(stranger.store, "bus").remove(head, connection=connection) == 1
        connection.commit()
    settle(cluster, peer)
    assert ran(peer) == [2]
    assert rows(peer) == (0, 0)


def test_ends_posts_and_dependencies_from_many_threads_leave_nobody_waiting(
    make_bus: MakeBus,
) -> None:
    def work(buses: list[PersistentBus], place: int) -> None:
        for number in range(5):
            base = place * 1_000 + number * 10
            bus = buses[number % 2]
            first = [buses[one].post(Order(base + one)) for one in range(2)]
            bus.post(Order(base + 2), order_key="k", after=first)
            bus.post(Order(base + 3), order_key="k")
            bus.post(Order(base + 4), order_key=f"k{place}", after=first[:1])

    _, done = done_by_two(make_bus, work, entries=100)
    for place in range(THREADS):
        mine = [number for number in done if number // 1_000 == place]
        ordered = [number for number in mine if number % 10 in {2, 3}]
        assert ordered == sorted(ordered)
        for last in ordered[::2]:
            assert all(mine.index(last - back) < mine.index(last) for back in (1, 2))
