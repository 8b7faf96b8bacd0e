"""Posting through a driver's connection: psycopg, PyMySQL or sqlite3, whatever its settings."""

from __future__ import annotations

import gc
import sqlite3
import weakref

import pytest
from sqlalchemy import URL

from bus.persistent import PersistentBus
from queue_core.errors import InvalidConnectionError, WriteLockError
from queue_core.model.states import State
from tests import requirements as needs
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Order, Recorder, database_of, delivered, ended
from tests.contract.transactions.callers import Connect, bus, connect

__all__ = ["bus", "connect"]

each_kind_of_row = pytest.mark.parametrize("rows", ["tuples", "dicts", "named"])


@each_kind_of_row
def test_a_commit_of_a_raw_connection_delivers(
    bus: PersistentBus, recorder: Recorder, connect: Connect, rows: str
) -> None:
    raw = connect(rows)
    first = bus.post(Order(1), search_key2=5, connection=raw)
    rest = bus.post_many([Order(number) for number in range(2, 32)], connection=raw)
    assert [entry.record_id for entry in bus.find(search_key2=5, connection=raw)] == [first]
    assert recorder.calls == 0
    raw.commit()
    assert [entry.record_id for entry in ended(bus, 31)] == [first, *rest]
    assert recorder.numbers() == list(range(1, 32))


@each_kind_of_row
def test_a_rollback_of_a_raw_connection_delivers_nothing(
    bus: PersistentBus, recorder: Recorder, connect: Connect, rows: str
) -> None:
    raw = connect(rows)
    bus.post(Order(1), connection=raw)
    bus.post_many([Order(2), Order(3)], connection=raw)
    raw.rollback()
    assert delivered(bus, recorder) == []
    assert bus.find() == []


def test_a_raw_savepoint_that_is_rolled_back_takes_its_events_along(
    bus: PersistentBus, recorder: Recorder, connect: Connect
) -> None:
    raw = connect()
    bus.post(Order(1), connection=raw)
    raw.cursor().execute("SAVEPOINT inner_one")
    bus.post(Order(2), connection=raw)
    raw.cursor().execute("ROLLBACK TO SAVEPOINT inner_one")
    raw.commit()
    recorder.wait()
    assert delivered(bus, recorder) == [1]


def test_an_autocommitting_raw_connection_delivers_at_once(
    bus: PersistentBus, recorder: Recorder, connect: Connect
) -> None:
    raw = connect(autocommit=True)
    bus.post(Order(1), connection=raw)
    recorder.wait(1)
    raw.rollback()
    assert delivered(bus, recorder) == [1]


def test_a_raw_connection_keeps_its_own_settings(bus: PersistentBus, connect: Connect) -> None:
    raw = connect("dicts")
    bus.post(Order(1), connection=raw)
    cursor = raw.cursor()
    cursor.execute("SELECT count(*) AS many FROM bus_events")
    assert cursor.fetchone() == {"many": 1}
    raw.rollback()
    raw.close()


def test_a_raw_update_to_the_values_that_an_entry_has_already_is_no_error(
    make_service: MakeService, connect: Connect
) -> None:
    """An UPDATE counts the rows that it changes in PyMySQL, but those found in SQLAlchemy."""
    queue = make_service().create_queue("shop", "bills", Recorder(), event_types=[Order])
    record_id = queue.schedule(Order(1), delay=3600, search_key2=5)
    raw = connect()
    assert queue.update(record_id, search_key2=5, connection=raw).search_key2 == 5
    raw.commit()
    assert [entry.record_id for entry in queue.find(search_key2=5)] == [record_id]


def test_a_raw_transaction_stays_open_and_is_the_callers_alone(
    bus: PersistentBus, recorder: Recorder, connect: Connect
) -> None:
    raw, other = connect(), connect()
    record_id = bus.post(Order(1), connection=raw)
    assert bus.ready_count(connection=raw) == 1
    assert bus.find(record_ids=[record_id]) == []
    cursor = other.cursor()
    cursor.execute("SELECT count(*) FROM bus_events")
    assert cursor.fetchone()[0] == 0
    other.rollback()
    raw.commit()
    recorder.wait()


@needs.notifies
def test_postgresql_tells_of_a_raw_commit_at_once(make_bus: MakeBus, connect: Connect) -> None:
    bus, recorder = make_bus(poll_interval_seconds=600.0), Recorder()
    bus.subscribe(Order, recorder)
    bus.start()
    raw = connect()
    bus.post(Order(1), connection=raw)
    raw.commit()
    recorder.wait()


@needs.server
def test_a_raw_connection_that_is_killed_delivers_nothing(
    bus: PersistentBus, recorder: Recorder, connect: Connect
) -> None:
    raw = connect()
    bus.post(Order(1), connection=raw)
    raw.close()
    assert delivered(bus, recorder) == []


def test_a_closed_bus_that_had_a_raw_connection_leaves_no_engine_behind(
    database_url: URL, connect: Connect
) -> None:
    raw = connect()
    bus = PersistentBus(database_url)
    bus.post(Order(1), connection=raw)
    raw.commit()
    engine = weakref.ref(database_of(bus).engine)
    bus.close()
    del bus
    gc.collect()
    assert engine() is None


def test_a_closed_raw_connection_is_refused(bus: PersistentBus, connect: Connect) -> None:
    raw = connect()
    raw.close()
    with pytest.raises(InvalidConnectionError, match="Nothing was written"):
        bus.post(Order(1), connection=raw)


def test_a_raw_connection_to_another_database_is_refused(bus: PersistentBus) -> None:
    other = sqlite3.connect(":memory:")  # on SQLite: another file
    with pytest.raises(InvalidConnectionError, match="Nothing was written"):
        bus.post(Order(1), connection=other)
    other.close()


@needs.one_writer
def test_a_raw_transaction_that_read_before_another_wrote_is_told_to_begin_immediate(
    bus: PersistentBus, connect: Connect
) -> None:
    raw = connect(autocommit=True)
    raw.execute("BEGIN")
    raw.execute("SELECT * FROM bus_events").fetchall()
    bus.post(Order(1))
    with pytest.raises(WriteLockError, match="BEGIN IMMEDIATE"):
        bus.post(Order(2), connection=raw)
    raw.rollback()


def test_a_raw_post_is_available_to_its_own_node(make_bus: MakeBus, connect: Connect) -> None:
    sticky, other = make_bus(poll_interval_seconds=0.05), make_bus(poll_interval_seconds=0.05)
    recorders = [Recorder(), Recorder()]
    for one, recorder in zip((sticky, other), recorders, strict=True):
        one.subscribe(Order, recorder)
        one.start()
    raw = connect()
    sticky.post_many([Order(number) for number in range(10)], connection=raw)
    raw.commit()
    assert {entry.processing_state for entry in ended(sticky, 10)} == {State.PROCESSED}
    assert [recorder.calls for recorder in recorders] == [10, 0]
