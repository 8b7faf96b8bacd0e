"""Order keys: entries of one key run one after the other, in the order of posting."""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from queue import Queue
from typing import Any

import pytest

from queue_core.model.lanes import WAITING_LANE
from sql.statements.ordered import OrderKey
from stickybus import (
    EntryNotFoundError,
    ImmediateRetries,
    InMemoryBus,
    InvalidPostError,
    NameTooLongError,
    NotificationService,
    Posting,
    State,
)
from tests import requirements as needs
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus
from tests.contract.harness import (
    BOUND_SECONDS,
    Order,
    Recorder,
    database_of,
    eventually,
    listening,
)
from tests.contract.order_looks import post, rows
from tests.contract.waits.looks import ran, waiting


def test_entries_of_one_key_start_one_at_a_time_in_the_order_of_posting(cluster: Cluster) -> None:
    peer = cluster.join("a")
    ids = post(peer, 1, 2, 3)
    other = post(peer, 9, key="other")
    plain = peer.bus.post(Order(7))

    assert peer.claim() == sorted([ids[0], *other, plain])
    assert waiting(peer) == ids[1:]
    peer.run()

    assert [number for number in ran(peer) if number < 7] == [1, 2, 3]
    assert sorted(ran(peer)) == [1, 2, 3, 7, 9]
    assert rows(peer) == (0, 0)


def test_a_bulk_post_keeps_the_order_of_its_postings(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.bus.post_many(
        [Posting(event=Order(number), order_key=f"k{number % 3}") for number in range(30)]
        + [Posting(event=Order(99))]
    )
    peer.run()
    by_key = defaultdict[int, list[int]](list)
    for number in ran(peer):
        by_key[number % 3 if number < 99 else 3].append(number)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert len(ran(peer)) == 31


def test_a_retry_keeps_its_place(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.handler = Recorder(failures=2)
    post(peer, 1, 2)
    peer.run()
    assert ran(peer) == [1, 1, 1, 2]


def test_an_entry_of_a_later_date_keeps_those_behind_it_waiting(cluster: Cluster) -> None:
    peer = cluster.join("a")
    post(peer, 1, delay=60)
    post(peer, 2)
    peer.run()
    assert ran(peer) == []
    cluster.live(61, peer)
    peer.run()
    assert ran(peer) == [1, 2]


def test_a_failed_entry_holds_its_key_until_it_is_retried(cluster: Cluster) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    peer.handler = Recorder(failures=1)
    first, *_ = post(peer, 1, 2, 3)
    post(peer, 9, key="other")
    peer.run()
    assert ran(peer) == [1, 9]
    assert [held.record_id for held in peer.bus.held_keys()] == [first]
    [held] = peer.bus.held_keys()
    assert (held.order_key, held.waiting) == ("k", 2)

    post(peer, 4)
    peer.bus.retry(first)
    peer.run()
    assert ran(peer) == [1, 9, 1, 2, 3, 4]
    assert peer.bus.held_keys() == []
    assert rows(peer) == (0, 0)


@pytest.mark.parametrize("named", ["the entry", "its retry"])
def test_a_retry_that_fails_again_holds_the_key_again(cluster: Cluster, named: str) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    peer.handler = Recorder(failures=2)
    first, _ = post(peer, 1, 2)
    peer.run()
    copy = peer.bus.retry(first)
    peer.run()
    assert [held.record_id for held in peer.bus.held_keys()] == [copy]
    peer.bus.retry(first if named == "the entry" else copy)
    peer.run()
    assert ran(peer) == [1, 1, 1, 2]
    assert rows(peer) == (0, 0)


def test_a_failed_entry_that_is_discarded_lets_the_others_go_on(cluster: Cluster) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    peer.handler = Recorder(failures=1)
    first, _ = post(peer, 1, 2)
    peer.run()
    peer.bus.discard(first)
    peer.run()
    assert ran(peer) == [1, 2]
    assert rows(peer) == (0, 0)


def test_a_key_that_a_deleted_entry_holds_goes_on_when_that_is_discarded(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    peer.handler = Recorder(failures=1)
    first, _ = post(peer, 1, 2)
    peer.run()
    cluster.tick(1, peer)
    assert peer.bus.truncate_history() == 1
    assert [held.record_id for held in peer.bus.held_keys()] == [first]

    assert peer.bus.discard(first)
    with pytest.raises(EntryNotFoundError):
        peer.bus.discard(first)
    peer.run()

    assert ran(peer) == [1, 2]
    assert rows(peer) == (0, 0)


def test_a_failed_entry_may_be_skipped_and_its_retry_runs_behind_the_others(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    peer.handler = Recorder(failures=1)
    first, _ = post(peer, 1, 2, order_failure="skip")
    peer.run()
    assert ran(peer) == [1, 2]
    post(peer, 3)
    peer.bus.retry(first)
    peer.run()
    assert ran(peer) == [1, 2, 3, 1]
    assert rows(peer) == (0, 0)


def test_what_is_removed_while_it_waits_is_left_out(cluster: Cluster, make_bus: MakeBus) -> None:
    peer = cluster.join("a")
    service = NotificationService(cluster.url, clock=cluster.clock)
    queue = service.create_queue("shop", "mail", lambda _event: None, event_types=[Order])
    ids = [queue.schedule(Order(number), delay=0, order_key="k") for number in range(3)]
    assert queue.remove(ids[1]) == 1
    assert queue.remove(ids[0]) == 1  # the head: the next one may run now
    assert [entry.processing_state for entry in queue.find()] == [State.AVAILABLE]
    assert queue.remove(ids[2]) == 1
    assert rows(peer) == (0, 0)
    service.close()


def test_the_head_keeps_its_place_when_its_node_dies(cluster: Cluster) -> None:
    dead, watcher = cluster.join("dead"), cluster.join("w")
    post(dead, 1, 2, 3)
    dead.claim()
    cluster.bury("dead", watcher)
    watcher.run()
    assert len(waiting(watcher)) <= 2
    cluster.live(40, watcher, step=3)
    while watcher.run():
        cluster.live(18, watcher, step=3)
    cluster.live(40, watcher, step=3)
    watcher.run()
    assert ran(watcher) == [1, 2, 3]
    assert rows(watcher) == (0, 0)


@pytest.mark.parametrize("runs", [True, False], ids=["a node", "a process that only posts"])
def test_posts_in_callers_transactions_start_once_they_are_committed(
    cluster: Cluster, *, runs: bool
) -> None:
    peer = cluster.join("a")
    poster = peer if runs else cluster.peer("stranger")
    with database_of(poster.bus).begin() as connection:
        ids = [
            poster.bus.post(Order(number), order_key="k", connection=connection)
            for number in range(3)
        ]
    assert waiting(peer) == ids
    peer.run()
    cluster.live(4, peer)
    peer.run()
    assert ran(peer) == [0, 1, 2]
    assert rows(peer) == (0, 0)


def test_a_rolled_back_transaction_leaves_nothing(cluster: Cluster) -> None:
    peer = cluster.join("a")
    with suppress(ZeroDivisionError), database_of(peer.bus).begin() as connection:
        peer.bus.post(Order(1), order_key="k", connection=connection)
        _ = 1 / 0
    post(peer, 2)
    peer.run()
    assert ran(peer) == [2]
    assert rows(peer) == (0, 0)


def test_posts_of_one_key_from_many_threads_and_their_ends_leave_nobody_waiting(
    make_bus: MakeBus,
) -> None:
    buses = [make_bus(node_name=f"n{place}", poll_interval_seconds=0.05) for place in range(2)]
    running, most, done = threading.Semaphore(1), list[bool](), list[int]()

    def handle(order: Order) -> None:
        alone = running.acquire(blocking=False)
        most.append(alone)
        done.append(order.number)
        if alone:
            running.release()

    for bus in buses:
        bus.subscribe(Order, handle, name="orders")
        bus.start()

    def work(place: int) -> None:
        for number in range(20):
            buses[place % 2].post(Order(place * 100 + number), order_key="k")

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: len(done) == 80, "all have run")
    assert all(most)
    for place in range(4):
        mine = [number for number in done if number // 100 == place]
        assert mine == sorted(mine)


@needs.many_writers
def test_posts_that_wait_for_the_head_of_their_key_end_in_no_deadlock(cluster: Cluster) -> None:
    peer = cluster.join("a")
    post(peer, 1)
    database, ordering = peer.store.database, peer.store.ordering
    key, asking = OrderKey("bus_events", "bus", "k"), Queue[str]()

    def start() -> None:
        with database.begin() as connection:  # which never runs anything again
            ordering.start(connection, key)

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if "queue_order_heads" in statement:
            asking.put(statement)

    with ThreadPoolExecutor(2) as pool:
        with database.begin() as connection:
            ordering.start(connection, key)
            with listening(database, before_cursor_execute=note):
                posts = [pool.submit(start) for _ in range(2)]
                for _ in posts:
                    asking.get(timeout=BOUND_SECONDS)
        for one in posts:
            one.result(BOUND_SECONDS)


def test_keys_that_can_not_be_stored_are_refused(cluster: Cluster) -> None:
    peer = cluster.join("a")
    with pytest.raises(NameTooLongError):
        peer.bus.post(Order(1), order_key="x" * 129)
    for wrong in ("", 7):
        with pytest.raises(InvalidPostError):
            peer.bus.post(Order(1), order_key=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidPostError):
        peer.bus.post(Order(1), order_key="k", order_failure="stop")  # type: ignore[call-overload]
    assert peer.bus.find() == []


def test_the_bus_in_memory_refuses_order_keys() -> None:
    with InMemoryBus() as bus, pytest.raises(InvalidPostError, match="order_key"):
        bus.post(Order(1), order_key="k")


def test_waiting_entries_stand_in_a_lane_of_their_own(cluster: Cluster) -> None:
    peer = cluster.join("a")
    post(peer, 1, 2)
    [entry] = peer.bus.find(states="WAITING")
    assert entry.lane == WAITING_LANE
    assert timedelta() <= entry.effective_date - entry.created_date
    assert entry.captured == {}


def test_the_late_failure_of_a_cut_run_does_not_hide_the_end_of_the_next_run(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(1))
    peer.handler = Recorder(hold=True, failures=1)
    for number in (1, 2):
        peer.bus.post(Order(number), order_key="k", max_run_seconds=5)
    peer.claim()
    with ThreadPoolExecutor(1) as threads:
        cut = threads.submit(peer.lifecycle.pool.run_submitted)
        peer.handler.wait()
        cluster.live(12, peer)
        peer.claim()  # cuts the run
        peer.lifecycle.finisher.write_all()
        peer.claim()  # the entry once more, for its next run
        peer.handler.release()
        cut.result()
    peer.lifecycle.pool.run_submitted()

    written = peer.lifecycle.finisher.write_all()  # the ends of both runs
    peer.run()

    assert sorted(outcome.entry.claim_count for outcome in written) == [1, 2]
    assert [entry.processing_state for entry in peer.bus.history()] == [State.PROCESSED] * 2
