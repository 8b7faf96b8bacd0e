"""Transactions of two phases."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest
from sqlalchemy import URL, Engine, text

from bus.persistent import PersistentBus
from stickybus import Mode
from tests import requirements as needs
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import (
    Order,
    Recorder,
    delivered,
    eventually,
)
from tests.contract.transactions.running import bus, engine

__all__ = ["bus", "engine"]


@needs.two_phase
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_two_phase_transaction_delivers_when_its_second_phase_commits(
    engine: Engine, bus: PersistentBus, recorder: Recorder, end: str, database_name: str
) -> None:
    if database_name == "postgresql" and not _prepares(engine):
        pytest.fail("the test's server must allow prepared transactions")
    with engine.connect() as connection:
        transaction = connection.begin_twophase()
        bus.post(Order(1), connection=connection)
        transaction.prepare()
        assert delivered(bus, recorder) == []
        getattr(transaction, end)()
    if end == "commit":
        eventually(lambda: 1 in recorder.numbers(), "it is delivered")
    else:
        assert delivered(bus, recorder) == []


@needs.two_phase
@pytest.mark.parametrize("mode", Mode)
def test_a_two_phase_transaction_posts_to_a_bus_of_any_mode_that_is_not_started(
    engine: Engine, make_bus: MakeBus, mode: Mode
) -> None:
    bus = make_bus(mode=mode)
    bus.subscribe(Order, Recorder())
    with engine.connect() as connection:
        transaction = connection.begin_twophase()
        [record_id] = [bus.post(Order(1), connection=connection)]
        transaction.prepare()
        assert bus.find() == []
        transaction.commit()
    assert [entry.record_id for entry in bus.find()] == [record_id]


@needs.two_phase
def test_a_two_phase_transaction_posts_to_a_running_bus_that_polls(
    engine: Engine, make_bus: MakeBus
) -> None:
    recorder, bus = Recorder(), make_bus(mode=Mode.POLLING, poll_interval_seconds=0.1)
    bus.subscribe(Order, recorder)
    bus.start()
    with engine.connect() as connection:
        transaction = connection.begin_twophase()
        bus.post(Order(1), connection=connection)
        transaction.prepare()
        transaction.commit()
    assert recorder.wait() == [Order(1)]


@needs.two_phase
def test_a_two_phase_transaction_schedules_and_moves_a_notification(
    engine: Engine, make_service: MakeService
) -> None:
    recorder, service = Recorder(), make_service(poll_interval_seconds=0.1)
    queue = service.create_queue("billing", "dunning", recorder)
    service.start()
    moved = queue.schedule(Order(1), delay=3600)
    with engine.connect() as connection:
        transaction = connection.begin_twophase()
        queue.update(moved, at=datetime.now(UTC), connection=connection)
        queue.schedule(Order(2), delay=0.0, connection=connection)
        transaction.prepare()
        transaction.commit()
    recorder.wait(2)
    assert sorted(recorder.numbers()) == [1, 2]


@needs.postgresql
def test_a_two_phase_transaction_of_the_drivers_own_posts(
    database_url: URL, make_bus: MakeBus
) -> None:
    recorder, bus = Recorder(), make_bus(mode=Mode.POLLING, poll_interval_seconds=0.1)
    bus.subscribe(Order, recorder)
    bus.start()
    plain = database_url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain) as connection:
        connection.tpc_begin(connection.xid(1, "order", "post"))
        bus.post(Order(1), connection=connection)
        connection.tpc_prepare()
        connection.tpc_commit()
    assert recorder.wait() == [Order(1)]


def _prepares(engine: Engine) -> bool:
    with engine.connect() as connection:
        return int(connection.scalar(text("SHOW max_prepared_transactions")) or 0) > 0
