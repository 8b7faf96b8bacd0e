"""Transactions that break, and connections that can not be used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import (
    Session,
)

from bus.persistent import PersistentBus
from queue_core.errors import DatabaseUnreachableError, InvalidConnectionError, WriteLockError
from queue_core.model.states import State
from tests import requirements as needs
from tests.contract.conftest import MakeBus, Orders
from tests.contract.harness import (
    Order,
    Recorder,
    database_of,
    delivered,
    ended,
    eventually,
    lost_answers,
)
from tests.contract.server_sessions import KILL, sessions
from tests.contract.transactions.models import OrderRow
from tests.contract.transactions.running import bus, engine

__all__ = ["bus", "engine"]


def _break_after_commit(connection: Connection) -> None:
    """Let the COMMIT reach the database and its answer get lost."""
    driver: Any = connection.connection.driver_connection
    cursor = driver.cursor()
    cursor.execute("COMMIT")
    driver.close()


def _kill(connection: Connection, database_name: str) -> None:
    """End the session of a connection by another one."""
    number = {"postgresql": "SELECT pg_backend_pid()"}.get(database_name, "SELECT connection_id()")
    session, engine = connection.scalar(text(number)), connection.engine
    with engine.connect() as killer:
        killer.exec_driver_sql(KILL[database_name].format(session))
        # It was told to end, and does so some time later.
        eventually(lambda: session not in sessions(engine, database_name), "the session ends")


def test_a_commit_whose_answer_is_lost_delivers(
    engine: Engine, bus: PersistentBus, recorder: Recorder
) -> None:
    with engine.connect() as connection:
        bus.post(Order(1), connection=connection)
        event.listen(engine, "commit", _break_after_commit)
        try:
            with pytest.raises(DBAPIError):
                connection.commit()
        finally:
            event.remove(engine, "commit", _break_after_commit)
        connection.invalidate()
    recorder.wait()
    assert delivered(bus, recorder) == [1]


@pytest.mark.slow
def test_a_commit_that_nothing_announced_is_found_by_the_sweep(
    engine: Engine, make_bus: MakeBus, recorder: Recorder
) -> None:
    # It sweeps once in a lease; and were that over, the post would be for any node.
    bus = make_bus(poll_interval_seconds=0.1, lease_seconds=5.0)
    bus.subscribe(Order, recorder)
    bus.start()
    with engine.connect() as connection:
        bus.post(Order(1), connection=connection)
        driver: Any = connection.connection.driver_connection
        driver.cursor().execute("COMMIT")
        recorder.wait()
    assert delivered(bus, recorder) == [1]
    by_number = {entry.event_json: entry for entry in ended(bus, 2)}
    swept = by_number['{"number":1}']
    assert (swept.processing_state, swept.claim_count > 1) == (State.PROCESSED, True)


def test_a_connection_that_breaks_before_its_commit_delivers_nothing(
    engine: Engine, bus: PersistentBus, recorder: Recorder
) -> None:
    with engine.connect() as connection:
        bus.post(Order(1), connection=connection)
        connection.invalidate()
    assert delivered(bus, recorder) == []


def test_an_own_post_whose_commit_gave_no_answer_raises_and_is_delivered_once(
    bus: PersistentBus, recorder: Recorder
) -> None:
    with (
        lost_answers(database_of(bus), "INSERT INTO bus_events", committed=True) as lost,
        pytest.raises((DBAPIError, DatabaseUnreachableError)),
    ):
        bus.post(Order(1))
    assert lost == ["answer"]
    recorder.wait()
    assert delivered(bus, recorder) == [1]


@needs.postgresql
def test_a_commit_that_postgresql_turns_into_a_rollback_delivers_nothing(
    engine: Engine, bus: PersistentBus, recorder: Recorder, orders: Orders
) -> None:
    with engine.connect() as connection:
        bus.post(Order(1), connection=connection)
        with pytest.raises(DBAPIError):
            connection.exec_driver_sql("SELECT 1 / 0")
        connection.commit()  # no error: the server answers ROLLBACK
    assert delivered(bus, recorder) == []


@needs.server
def test_a_transaction_whose_session_is_killed_delivers_nothing(
    engine: Engine, bus: PersistentBus, recorder: Recorder, database_name: str
) -> None:
    with engine.connect() as connection:
        bus.post(Order(1), connection=connection)
        _kill(connection, database_name)
        with pytest.raises(DBAPIError):
            connection.commit()
        connection.invalidate()
    assert delivered(bus, recorder) == []


@needs.server
def test_a_post_is_not_harmed_by_an_application_s_connection_that_broke(
    engine: Engine, bus: PersistentBus, recorder: Recorder, database_name: str
) -> None:
    # The bus has open connections, and this thread has used them.
    bus.post(Order(1))
    recorder.wait()
    for order in range(2, 12):
        with engine.connect() as connection:
            _kill(connection, database_name)
            with pytest.raises(DBAPIError):
                connection.exec_driver_sql("SELECT 1")
            bus.post(Order(order))
    assert sorted(delivered(bus, recorder)) == list(range(1, 12))


def test_a_closed_or_invalidated_connection_is_refused(engine: Engine, bus: PersistentBus) -> None:
    connection = engine.connect()
    connection.close()
    with pytest.raises(InvalidConnectionError, match="Nothing was written"):
        bus.post(Order(1), connection=connection)
    with engine.connect() as broken:
        broken.invalidate()
        with pytest.raises(InvalidConnectionError):
            bus.post(Order(1), connection=broken)
    assert bus.find() == []


def test_a_failed_session_is_refused_until_it_is_rolled_back(
    engine: Engine, bus: PersistentBus, orders: Orders
) -> None:
    with Session(engine) as session:
        session.add_all([OrderRow(number=1), OrderRow(number=2)])
        session.commit()
        session.expunge_all()
        session.add(OrderRow(number=1))
        with pytest.raises(IntegrityError):
            session.flush()
        with pytest.raises(InvalidConnectionError, match="session can't be used"):
            bus.post(Order(1), connection=session)
        session.rollback()
        bus.post(Order(1), connection=session)
        session.commit()
    ended(bus, 1)


def test_a_connection_to_another_database_is_refused(
    bus: PersistentBus, database_name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = create_engine(f"sqlite:///{tmp_path_factory.mktemp('other')}/other.db")
    with (
        other.connect() as connection,
        pytest.raises(InvalidConnectionError, match="Nothing was written"),
    ):
        bus.post(Order(1), connection=connection)
    other.dispose()


@pytest.mark.parametrize("given", [42, "connection", object()])
def test_what_is_no_connection_is_refused(bus: PersistentBus, given: object) -> None:
    with pytest.raises(InvalidConnectionError, match="Nothing was written"):
        bus.post(Order(1), connection=given)  # type: ignore[call-overload]


@needs.one_writer
def test_a_transaction_that_read_before_another_wrote_is_told_to_begin_immediate(
    engine: Engine, bus: PersistentBus, orders: Orders
) -> None:
    with engine.connect() as connection:
        connection.execute(text("SELECT * FROM orders")).all()
        bus.post(Order(1))
        with pytest.raises(WriteLockError, match="BEGIN IMMEDIATE"):
            bus.post(Order(2), connection=connection)
    assert [entry.record_id for entry in ended(bus, 1)]


def test_a_connection_whose_block_was_rolled_back_is_refused(
    engine: Engine, bus: PersistentBus
) -> None:
    calls: list[Callable[[Connection], object]] = [
        lambda connection: bus.post(Order(1), connection=connection),
        lambda connection: bus.post(Order(1), key="a", connection=connection),
        lambda connection: bus.find(connection=connection),
    ]
    with engine.connect() as connection, connection.begin() as transaction:
        transaction.rollback()
        for call in calls:
            with pytest.raises(InvalidConnectionError, match="Nothing was written") as refused:
                call(connection)
            assert refused.value.queue_name == "bus"
    assert bus.find() == []
