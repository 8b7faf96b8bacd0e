"""Invariants of the engine: one runner, an outcome for each entry, bounds."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import URL, Connection, Engine, create_engine, event

from queue_core.model.lanes import SUSPECT
from queue_core.posting import announced_commits as announced
from queue_core.posting import posted_hand_over
from stickybus import Entry, EntryContext, Failure, ImmediateRetries, Posting, State
from tests import requirements as needs
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder, Trouble, ended, engine_of, eventually


def processed(peer: Peer) -> list[int]:
    """The orders that have ended PROCESSED, by chain."""
    ended = peer.bus.history(states=[State.PROCESSED])
    return sorted(entry.origin_id or entry.record_id for entry in ended)


# -- one runner: a lease that ended and began anew -----------------------------------------------


@pytest.mark.parametrize("mode", ["STICKY_EVENTS", "STICKY_POLLING", "POLLING"])
def test_a_node_that_was_declared_dead_starts_nothing_that_it_held_then(
    cluster: Cluster, mode: str
) -> None:
    frozen, heir = cluster.join("a", mode=mode), cluster.join("b", mode=mode)
    ids = frozen.bus.post_many([Order(1), Order(2)])
    assert frozen.claim() == ids  # in the pool's queue
    cluster.bury("a", heir)
    heir.run()

    frozen.beat()  # and registers anew
    assert frozen.node.lease.holds()
    frozen.run()

    assert frozen.handler.numbers() == []
    assert heir.handler.numbers() == [1, 2]
    assert processed(heir) == ids


def test_what_a_node_held_runs_there_if_nobody_took_it(cluster: Cluster) -> None:
    frozen, heir = cluster.join("a"), cluster.join("b")
    ids = frozen.bus.post_many([Order(1), Order(2)])
    cluster.change_row("a", state="DEAD")  # declared dead; its entries not moved yet

    frozen.beat()
    frozen.run()
    heir.run()

    assert frozen.handler.numbers() == [1, 2]
    assert processed(frozen) == ids


def test_the_next_subscriber_of_an_entry_starts_only_within_the_lease(cluster: Cluster) -> None:
    frozen, heir = cluster.join("a"), cluster.join("b")
    second, other = Recorder(), Recorder()
    frozen.handler = Recorder(hold=True)
    frozen.bus.subscribe(Order, second, name="second")
    heir.bus.subscribe(Order, other, name="second")
    [record_id] = [frozen.bus.post(Order(1))]
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(frozen.lifecycle.run_due)
        frozen.handler.wait()
        cluster.bury("a", heir)
        heir.run()
        frozen.handler.release()
        run.result()

    assert (second.calls, other.calls) == (0, 1)
    assert processed(heir) == [record_id]


def test_a_subscriber_that_succeeded_before_the_lease_ended_is_not_run_again(
    cluster: Cluster,
) -> None:
    peer = cluster.join("a")
    second = Recorder()
    peer.handler = Recorder(hold=True)
    peer.bus.subscribe(Order, second, name="second")
    peer.bus.post(Order(1))
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(peer.lifecycle.run_due)
        peer.handler.wait()
        cluster.clock.advance(seconds=60)  # no beat, and nobody there to take over
        peer.handler.release()
        run.result()
    assert second.calls == 0

    peer.beat()
    peer.run()

    assert (peer.handler.calls, second.calls) == (1, 1)
    [ended] = peer.bus.history()
    assert (ended.processing_state, ended.error_count) == (State.PROCESSED, 0)


def test_serial_turns_that_come_after_the_lease_are_passed_on(cluster: Cluster) -> None:
    peer, slow = cluster.join("a"), Recorder(hold=True)
    peer.bus.unsubscribe(peer.handle)
    peer.bus.subscribe(Order, slow, name="serial", serial=True)
    peer.bus.post(Order(1))
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(peer.lifecycle.pool.run_submitted)
        slow.wait()
        peer.bus.post_many([Order(2), Order(3)])
        peer.lifecycle.pool.run_submitted()  # both wait for their turn
        cluster.clock.advance(seconds=60)
        slow.release()
        first.result()
    peer.lifecycle.pool.run_submitted()
    peer.lifecycle.pool.run_submitted()
    assert slow.numbers() == [1]

    peer.beat()
    peer.run()

    assert slow.numbers() == [1, 2, 3]
    assert len(processed(peer)) == 3


def test_the_turn_at_a_serial_handler_outlives_a_stop_that_ran_out_of_time(
    make_bus: MakeBus,
) -> None:
    bus, slow = make_bus(), Recorder(hold=True)
    bus.subscribe(Order, slow, name="serial", serial=True)
    bus.start()
    bus.post(Order(1))
    slow.wait()
    bus.post(Order(2))
    found = engine_of(bus).router.subscribers("bus", bus.find()[0].class_name)
    assert found
    [subscriber] = found
    turns = subscriber.gate
    assert turns is not None

    def waiting() -> int:
        return sum(turns.expected.values()) + len(turns.others)

    eventually(lambda: waiting() == 1, "the second waits for its turn")
    assert not bus.stop(timeout_seconds=0)
    bus.start()
    eventually(lambda: waiting() == 2, "the second waits again, behind the turn of the life before")

    slow.release()

    eventually(lambda: len(bus.history(states=[State.PROCESSED])) == 2, "both have ended")
    assert bus.find() == []
    assert slow.numbers() == [1, 2]


# -- no loss: an entry always has an outcome -----------------------------------------------------


class Exiting:
    """A retry policy that ends the thread which asks it."""

    def next_date(self, failure: Failure) -> datetime | None:
        raise SystemExit(str(failure.error))


def test_whatever_a_retry_policy_does_the_entry_ends_and_the_pool_lives(cluster: Cluster) -> None:
    peer = cluster.join("a")
    peer.handler = Recorder(failures=1)
    peer.bus.unsubscribe(peer.handle)
    peer.bus.subscribe(Order, peer.handle, name="orders", retry=Exiting())
    peer.bus.post_many([Order(1), Order(2)])

    peer.run()

    one, two = peer.bus.history()
    assert (one.processing_state, two.processing_state) == (State.FAILED, State.PROCESSED)
    assert "SystemExit" in (one.last_error or "")


@pytest.mark.parametrize("error", [Trouble(), TimeoutError("no connection is free")])
def test_entries_that_wait_by_id_are_read_again_after_any_error(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    peer = cluster.join("a", handler_threads=1, max_entries_claimed=1)
    large = [Posting(event=Order(number), headers={"filling": "x"}) for number in range(6)]
    monkeypatch.setattr(posted_hand_over, "LARGE_PAYLOAD", 1)
    ids = peer.bus.post_many(large)
    assert peer.lifecycle.ledger.waiting

    def failing(*_arguments: Any) -> list[Entry]:
        raise error

    peer.lifecycle.run_due()
    with monkeypatch.context() as patched:
        patched.setattr(peer.store, "owned", failing)
        with pytest.raises(type(error)):
            peer.lifecycle.claim_loop.turn()
    peer.run()

    assert processed(peer) == ids


@needs.deferred_constraints
def test_a_commit_that_a_deferred_constraint_refuses_leaves_nothing_and_holds_up_nobody(
    make_bus: MakeBus, database_url: URL, engine: Engine
) -> None:
    """Of an exactly-once handler; MariaDB has no such constraints."""
    own = create_engine(database_url)
    if database_url.get_backend_name() == "sqlite":
        event.listen(
            own, "connect", lambda driver, _record: driver.execute("PRAGMA foreign_keys=ON")
        )
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE parents (id INTEGER PRIMARY KEY)")
        connection.exec_driver_sql(
            "CREATE TABLE children (id INTEGER PRIMARY KEY, parent INTEGER NOT NULL"
            " REFERENCES parents DEFERRABLE INITIALLY DEFERRED)"
        )
    bus = make_bus(database=own, retry=ImmediateRetries(1), handler_threads=1)

    def handle(order: Order, context: EntryContext) -> None:
        assert context.connection is not None
        child = context.error_count * 10 + order.number
        parent = 1 if order.number == 2 else 9
        if order.number == 2:
            context.connection.exec_driver_sql("INSERT INTO parents VALUES (1)")
        context.connection.exec_driver_sql(f"INSERT INTO children VALUES ({child}, {parent})")

    bus.subscribe(Order, handle, exactly_once=True)
    bus.post_many([Order(1), Order(2)])
    bus.start()

    first, second = ended(bus, 2)
    assert (first.processing_state, first.error_count) == (State.FAILED, 2)
    assert second.processing_state is State.PROCESSED
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT id FROM children").scalars().all() == [2]
    own.dispose()


# -- bounded -------------------------------------------------------------------------------------


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
    peer.lifecycle.claim_loop.announced.add(
        list(range(10**6, 10**6 + 70_000))
    )  # more than a statement has parameters

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

    def counting(connection: Connection, **options: Any) -> Any:
        found = locked_page(connection, **options)
        looks.append(bool(found))
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(statements, "locked_page", counting)
        cluster.bury("a", other)

    assert {entry.lane for entry in other.bus.find()} == {""}
    # For what ran, for what was due, and for what is left after the last full batch.
    assert looks.count(False) <= 3


@needs.sqlite
def test_entries_change_their_lane_by_primary_key(cluster: Cluster) -> None:
    """SQLite knows nothing of how long a lane is, and would rather read all of it."""
    peer = cluster.join("a")
    database, caught, plans = peer.store.database, list[tuple[str, Any]](), list[str]()

    def catch(
        _connection: object, _cursor: object, text: str, parameters: Any, *_rest: object
    ) -> None:
        caught.append((text, parameters))

    with database.begin() as connection:
        event.listen(connection, "before_cursor_execute", catch)
        peer.store.statements.change_lane(
            connection, ids=range(10), from_lane="a", to_lane="", suspect_lane=SUSPECT
        )
        event.remove(connection, "before_cursor_execute", catch)
        [(text, parameters)] = caught
        plans += [
            row.detail
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", parameters)
        ]

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
