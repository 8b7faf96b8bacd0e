"""What a node holds, reads and asks for is bounded, and nobody starves."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, Row

from queue_core.model.lanes import SUSPECT
from queue_core.posting import announced_commits as announced
from stickybus import Entry, ImmediateRetries, Posting, State
from tests import requirements as needs
from tests.contract.cluster import Cluster
from tests.contract.harness import Order, Recorder
from tests.contract.invariants.ends import processed
from tests.contract.plans.caught import catching


def test_a_transaction_that_posts_more_than_a_node_may_hold_is_delivered_whole(
    cluster: Cluster, engine: Engine
) -> None:
    peer = cluster.join("a", queue_capacity=10)
    with engine.begin() as connection:
        for number in range(40):
            peer.bus.post(Order(number), connection=connection)
    peer.claim()

    assert len(peer.lifecycle.ledger) <= 10
    peer.run()
    assert peer.handler.numbers() == list(range(40))
    assert len(processed(peer)) == 40


def test_a_commit_that_is_held_already_is_not_looked_for(cluster: Cluster, engine: Engine) -> None:
    """The sweep may find it between the COMMIT and its announcement."""
    peer = cluster.join("a")
    with engine.begin() as connection:
        record_id = peer.bus.post(Order(1), connection=connection)
    peer.claim()
    assert record_id in peer.lifecycle.ledger
    looked_for = peer.lifecycle.claim_loop.announced

    looked_for.add([record_id])
    peer.claim()

    assert looked_for.next_look() is None


def test_commits_are_looked_up_in_batches_that_every_database_takes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = cluster.join("a")
    asked, owned = list[int](), peer.store.owned

    def counting(ids: Sequence[int], owner: str) -> list[Entry]:
        asked.append(len(ids))
        return owned(ids, owner)

    monkeypatch.setattr(peer.store, "owned", counting)
    # More than a statement has parameters.
    peer.lifecycle.claim_loop.announced.add(list(range(10**6, 10**6 + 70_000)))

    peer.lifecycle.claim_loop.turn()

    assert sum(asked) == 70_000
    assert max(asked) <= announced.LOOK_BATCH


def test_a_dead_nodes_lane_is_not_read_again_for_each_batch_that_is_moved(cluster: Cluster) -> None:
    """Else the hand-over of a hundred thousand notifications that wait takes hours."""
    killed, other = cluster.join("a", mode="STICKY_POLLING"), cluster.join("b")
    now, statements = cluster.clock.now(), other.store.statements
    killed.bus.post_many(
        Posting(event=Order(number), at=now + timedelta(days=1)) for number in range(60)
    )
    looks, locked_page = list[bool](), statements.locked_page

    def counting(connection: Connection, **options: Any) -> list[Row[Any]]:
        found = locked_page(connection, **options)
        looks.append(bool(found))
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(statements, "locked_page", counting)
        cluster.bury("a", other)

    assert {entry.lane for entry in other.bus.find()} == {""}
    # For entries that ran, for due entries, and for the rest after the last full batch.
    assert looks.count(False) <= 3


@needs.sqlite
def test_entries_change_their_lane_by_primary_key(cluster: Cluster) -> None:
    """SQLite knows nothing of how long a lane is, and would rather read all of it."""
    peer = cluster.join("a")
    with peer.store.database.begin() as connection:
        with catching(connection) as caught:
            peer.store.statements.change_lane(
                connection, ids=range(10), from_lane="a", to_lane="", suspect_lane=SUSPECT
            )
        [statement] = caught
        plan = connection.exec_driver_sql(
            f"EXPLAIN QUERY PLAN {statement.text}", statement.parameters
        )
        plans = [row.detail for row in plan]

    assert plans == ["SEARCH bus_events USING INTEGER PRIMARY KEY (rowid=?)"]


def test_a_suspect_that_overran_its_time_keeps_no_other_suspect_waiting(cluster: Cluster) -> None:
    killed, other = cluster.join("a"), cluster.join("b")
    killed.bus.post_many([Order(1), Order(2)])
    cluster.bury("a", other)
    other.bus.unsubscribe(other.handle)
    other.bus.subscribe(Order, other.handle, name="orders", max_run_seconds=5)
    other.handler = Recorder(hold=True)
    other.claim()
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(other.lifecycle.pool.run_submitted)
        other.handler.wait()
        for _ in range(3):
            cluster.tick(3, other)
            other.claim()
        held = other.numbers_held()
        other.handler.release()
        hanging.result()
    other.run()

    assert len(held) == 1
    assert len(processed(other)) == 2


@pytest.mark.parametrize("others", [0, 1])
def test_a_run_whose_entry_was_taken_from_it_starts_and_records_nothing_more(
    cluster: Cluster, others: int
) -> None:
    peer = cluster.join("a", retry=ImmediateRetries(0))
    second = Recorder()
    peer.bus.unsubscribe(peer.handle)
    peer.bus.subscribe(Order, peer.handle, name="slow", max_run_seconds=5)
    if others:
        peer.bus.subscribe(Order, second, name="second")
    peer.handler = Recorder(hold=True)
    record_id = peer.bus.post(Order(1))
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(peer.lifecycle.pool.run_submitted)
        peer.handler.wait()
        for _ in range(3):
            cluster.tick(3, peer)
            peer.claim()
        peer.handler.release()
        slow.result()

    peer.lifecycle.finisher.write_all()  # both outcomes of the claim, in one batch

    assert second.calls == 0
    [ended] = peer.bus.history()
    assert (ended.record_id, ended.processing_state) == (record_id, State.FAILED)
    assert "TimeoutError" in (ended.last_error or "")
    assert len(peer.lifecycle.ledger) == 0


def test_a_backlog_of_its_own_does_not_keep_a_node_from_what_any_node_may_run(
    cluster: Cluster,
) -> None:
    """Reaped entries, and those of processes that only post, would starve behind it."""
    peer = cluster.join("a", mode="STICKY_POLLING", handler_threads=1, max_entries_claimed=10)
    peer.bus.post_many(Order(number) for number in range(100))
    outside = cluster.peer("outside").bus
    outside.post(Order(1_000))
    peer.claim()
    assert 1_000 in peer.numbers_held()
