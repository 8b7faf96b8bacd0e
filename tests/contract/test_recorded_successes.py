"""A success that an exactly-once handler has recorded stays, whatever becomes of its run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from bus.persistent import PersistentBus
from queue_core.model.retry_policies import ImmediateRetries, ScheduledRetries
from queue_core.model.states import State
from queue_core.running.subscriber import EntryContext
from sql.database import Database
from tests.contract.cluster import Cluster, Peer
from tests.contract.conftest import Orders
from tests.contract.harness import (
    BOUND_SECONDS,
    Order,
    Recorder,
    database_of,
    elsewhere,
    ended,
    listening,
    lost_answers,
)

LIMIT_SECONDS = 5.0


class Effects:
    """Exactly-once handlers. Each call writes a number, which tells its handler."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.calls = dict[str, int]()

    def subscribe(self, bus: PersistentBus, name: str, digit: int, **options: Any) -> None:
        def add(_order: Order, context: EntryContext) -> None:
            self.calls[name] = self.calls.get(name, 0) + 1
            connection = context.connection
            assert connection is not None
            connection.execute(self.orders.add(100 * digit + self.calls[name]))

        bus.subscribe(Order, add, name=name, exactly_once=True, **options)


@pytest.fixture
def effects(orders: Orders) -> Effects:
    return Effects(orders)


@contextmanager
def without_answer(database: Database, lost: list[str]) -> Iterator[list[str]]:
    """Refuse a handler's thread its next statement, once an answer was lost."""
    refused = list[str]()
    errors: Any = database.engine.dialect.loaded_dbapi

    def refuse(_connection: Connection, _cursor: object, text: str, *_: object) -> None:
        handles = threading.current_thread().name.startswith("bus_events-handler")
        if lost and handles and not refused:
            refused.append(text)
            raise DBAPIError.instance(
                text, {}, errors.OperationalError("connection refused"), errors.Error
            )

    with listening(database, before_cursor_execute=refuse):
        yield refused


@pytest.mark.parametrize("committed", [True, False])
def test_an_effect_is_there_once_if_nobody_could_tell_whether_its_commit_took_effect(
    bus: PersistentBus, effects: Effects, *, committed: bool
) -> None:
    effects.subscribe(bus, "a", 1)
    effects.subscribe(bus, "b", 2)
    bus.start()
    database = database_of(bus)
    with (
        lost_answers(database, "INSERT INTO orders", committed=committed) as lost,
        without_answer(database, lost) as refused,
    ):
        bus.post(Order(1))
        [entry] = ended(bus)
    assert len(refused) == 1
    assert effects.orders.numbers() == ([101, 201] if committed else [102, 201])
    assert (entry.processing_state, entry.error_count) == (State.PROCESSED, 0)


def test_an_ending_whose_commit_nobody_could_tell_stands_once(
    bus: PersistentBus, effects: Effects
) -> None:
    effects.subscribe(bus, "a", 1)
    bus.start()
    database = database_of(bus)
    with (
        lost_answers(database, "INSERT INTO orders", committed=True) as lost,
        without_answer(database, lost) as refused,
    ):
        bus.post(Order(1))
        [entry] = ended(bus)
        last = bus.post(Order(2))
        assert ended(bus, 2)[-1].record_id == last
    assert len(refused) == 1
    assert (entry.processing_state, effects.orders.numbers()) == (State.PROCESSED, [101, 102])


def alone(cluster: Cluster, retries: int = 3) -> Peer:
    peer = cluster.join("a", retry=ImmediateRetries(retries))
    peer.bus.unsubscribe(peer.handle)
    return peer


def test_a_handler_that_ends_after_it_was_cut_commits_nothing(
    cluster: Cluster, effects: Effects
) -> None:
    peer, held = alone(cluster), Recorder(hold=True)

    @peer.bus.subscribe(Order, name="a", exactly_once=True, max_run_seconds=LIMIT_SECONDS)
    def add(order: Order, context: EntryContext) -> None:
        held(order, context)
        assert context.connection is not None
        context.connection.execute(effects.orders.add(held.calls))

    effects.subscribe(peer.bus, "b", 2)
    peer.bus.post(Order(1))
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(peer.lifecycle.pool.run_submitted)
        held.wait()
        cluster.live(LIMIT_SECONDS + 8, peer)
        peer.claim()  # its outcome as a run that was cut is not written yet
        held.release()
        hanging.result(BOUND_SECONDS)
    after_the_cut = effects.orders.numbers()
    peer.run()
    [entry] = peer.bus.history()
    assert (after_the_cut, effects.orders.numbers()) == ([], [2, 201])
    assert (entry.processing_state, entry.error_count) == (State.PROCESSED, 1)


@contextmanager
def cut_at_its_commit(cluster: Cluster, peer: Peer) -> Iterator[list[str]]:
    """Let the limit of the first handler whose transaction ends be over just before its COMMIT."""
    cut, database = list[str](), peer.store.database
    runner = peer.lifecycle.pool.runner

    def take() -> None:
        cluster.clock.advance(seconds=LIMIT_SECONDS + 1)
        [handling] = runner.running_longer_than(LIMIT_SECONDS)
        peer.lifecycle.finisher.complete(runner.cut(handling))

    def before_commit(connection: Connection) -> None:
        if connection.engine is database.lent and not cut:
            cut.append("cut")
            elsewhere(take)

    with listening(database, commit=before_commit):
        yield cut


@pytest.mark.parametrize("retries", [0, 3])
def test_what_committed_as_its_run_was_cut_is_not_done_again(
    cluster: Cluster, effects: Effects, retries: int
) -> None:
    peer = alone(cluster, retries)
    effects.subscribe(peer.bus, "a", 1, max_run_seconds=LIMIT_SECONDS)
    effects.subscribe(peer.bus, "b", 2, max_run_seconds=LIMIT_SECONDS)
    peer.bus.post(Order(1))
    with cut_at_its_commit(cluster, peer) as cut:
        peer.run()
    assert cut == ["cut"]
    [entry] = peer.bus.history()
    if not retries:
        assert (entry.processing_state, entry.progress) == (State.FAILED, {"a": True})
        again = peer.bus.retry(entry.record_id)
        peer.run()
        [entry] = peer.bus.history(record_ids=[again])
    assert entry.processing_state is State.PROCESSED
    assert effects.orders.numbers() == [101, 201]


def test_a_success_stays_though_a_subscriber_has_gone_whose_retry_is_due_later(
    cluster: Cluster, effects: Effects
) -> None:
    peer = alone(cluster)
    later = ScheduledRetries((timedelta(minutes=5),))
    gone = Recorder(failures=99)
    peer.bus.subscribe(Order, gone, name="gone", retry=later)
    failing = Recorder(failures=1)

    @peer.bus.subscribe(Order, name="a", exactly_once=True)
    def add(order: Order, context: EntryContext) -> None:
        assert context.connection is not None
        context.connection.execute(effects.orders.add(failing.calls + 1))
        if failing.calls == 0:
            peer.bus.unsubscribe(gone)
        failing(order, context)

    peer.bus.post(Order(1))
    peer.run()
    cluster.live(400, peer, step=3.0)
    peer.run()
    [entry] = peer.bus.history()
    assert (entry.processing_state, effects.orders.numbers()) == (State.PROCESSED, [2])
