"""No loss: an entry always has an outcome."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import URL, Engine, create_engine, event

from queue_core.posting import posted_hand_over
from stickybus import Entry, EntryContext, Failure, ImmediateRetries, Posting, State
from tests import requirements as needs
from tests.contract.cluster import Cluster
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder, Trouble, ended
from tests.contract.invariants.ends import processed


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
