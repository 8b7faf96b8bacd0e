"""Buses and services on an application's engine whose pool has one connection."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

from history_pipeline.upkeep.deletion import locked_history
from queue_core.doctor.examination import examine
from queue_core.model.retry_policies import ImmediateRetries
from queue_core.running.subscriber import EntryContext
from sql import schema
from sql.database import Database
from tests import requirements as needs
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Machine, Order, Recorder, ended, node_of


def single(url: URL, **options: Any) -> Engine:
    """An engine with one connection, for which nobody waits long."""
    return create_engine(
        url, poolclass=QueuePool, pool_size=1, max_overflow=0, pool_timeout=10.0, **options
    )


@pytest.fixture
def lone(database_url: URL) -> Iterator[Engine]:
    """Such an engine on the test's database."""
    engine = single(database_url)
    yield engine
    engine.dispose()


def refuse(_event: Any, _context: EntryContext) -> None:
    raise ValueError


def test_a_bus_with_one_connection_delivers_finds_retries_and_truncates(
    lone: Engine, make_bus: MakeBus, recorder: Recorder
) -> None:
    bus = make_bus(database=lone)
    bus.subscribe(Order)(recorder)
    bus.subscribe("bad", retry=ImmediateRetries(0))(refuse)
    bus.start()

    bus.post_many([Order(number) for number in range(20)])
    bad = bus.post({}, event_name="bad")

    assert len(ended(bus, 21)) == 21
    assert bus.ready_count() == 0
    assert bus.retry(bad) > bad
    ended(bus, 22)
    assert bus.truncate_history(states=["FAILED"]) == 2
    assert bus.truncate_history() == 20
    assert bus.stop()


def test_a_service_with_one_connection_schedules_changes_and_removes(
    lone: Engine, make_service: MakeService, recorder: Recorder
) -> None:
    service = make_service(database=lone)
    queue = service.create_queue("s", "q", recorder, event_types=[Order]).start()
    service.start()
    queue.recur("hourly", Order(0), every=3600.0)
    first, second = (queue.schedule(Order(number), delay=3600.0) for number in (1, 2))

    queue.update(first, at=datetime.now(UTC))
    recorder.wait(1)
    assert queue.remove(second) == 1
    assert queue.stop_recurring("hourly")


def test_a_transaction_of_a_handler_keeps_no_connection_from_beats_and_other_entries(
    lone: Engine, make_bus: MakeBus, recorder: Recorder
) -> None:
    bus = make_bus(database=lone)
    held = Recorder(hold=True)
    bus.subscribe("held", name="held", exactly_once=True)(held)
    bus.subscribe(Order)(recorder)
    bus.start()
    bus.post({}, event_name="held")
    held.wait(1)

    bus.post(Order(1))

    ended(bus, 1)
    node = node_of(bus)
    node.beat_turn()
    held.release()
    ended(bus, 2)


@pytest.mark.usefixtures("lone")
def test_doctor_and_archive_work_on_one_connection(lone: Engine, make_bus: MakeBus) -> None:
    bus = make_bus()
    bus.post(Order(1))
    database = Database(lone)
    try:
        examine(database)
        with locked_history(database, "bus_events") as history:
            assert history.count(history.now()) == 0
            assert history.closed_range(history.now(), 10) is None
            assert history.deleted_runs() == set()
            with database.begin(history.connection) as connection:
                history.statements.delete_range(
                    connection, first_id=1, last_id=9, before=history.now()
                )
                history.now()
    finally:
        database.close()


def test_a_schema_is_made_on_one_connection(empty_database_url: URL) -> None:
    engine = single(empty_database_url)
    database = Database(engine)
    assert schema.ensure(database, ("bus_events",)).fit is schema.Fit.MISSING
    with database.read() as connection:
        assert schema.check(connection, ("bus_events",)).fit is schema.Fit.CURRENT
    database.close()
    engine.dispose()


@needs.sqlite
def test_a_bus_with_one_connection_makes_a_new_file(
    empty_database_url: URL, make_bus: MakeBus
) -> None:
    engine = single(empty_database_url)
    bus = make_bus(database=engine)
    assert bus.post(Order(1)) == 1
    engine.dispose()


def test_connections_are_replaced_after_the_time_that_the_application_has_set(
    database_url: URL, machine: Machine
) -> None:
    engine = create_engine(
        database_url, poolclass=QueuePool, pool_size=4, max_overflow=0, pool_recycle=60
    )
    database = Database(engine)
    opened = list[object]()
    event.listen(database.autocommit, "connect", lambda driver, _record: opened.append(driver))
    try:
        for _ in range(3):
            database.fetch(database.dialect.database_now)
        assert len(opened) == 1
        machine.suspend(61.0)
        for _ in range(3):
            database.fetch(database.dialect.database_now)
        assert len(opened) == 2
    finally:
        database.close()
        engine.dispose()


def _sockets(driver: Any) -> socket.socket:
    number = driver._sock.fileno() if hasattr(driver, "_sock") else driver.pgconn.socket
    return socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM)


@needs.server
@pytest.mark.parametrize("made", [lambda url: url, create_engine], ids=["url", "engine"])
def test_the_kernel_probes_whether_the_server_of_an_idle_connection_is_there(
    database_url: URL, made: Callable[[URL], URL | Engine]
) -> None:
    database = Database(made(database_url))
    for own in database.engines:
        with (
            own.connect() as connection,
            _sockets(connection.connection.driver_connection) as connected,
        ):
            options = [
                connected.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            ]
            assert (connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), options) == (
                1,
                [10, 5, 3],
            )
            assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
    database.close()
