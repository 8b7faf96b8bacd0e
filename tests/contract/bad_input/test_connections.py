"""Every call refuses a connection that can't carry a posting, and writes nothing."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Engine, create_engine, func, select
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from bus.persistent import PersistentBus
from devtools.programs import URL_VARIABLES
from devtools.server import DatabaseServer
from notifications.queue import NotificationQueue
from queue_core.errors import ConfigurationError, DatabaseUnreachableError, InvalidConnectionError
from queue_core.model.config import BusConfig
from queue_core.model.node_config import NodeConfig
from queue_core.model.states import State
from sql.tables import entry_tables
from tests import requirements as needs
from tests.conftest import NewDatabase
from tests.contract.conftest import MakeBus
from tests.contract.harness import BOUND_SECONDS, Order, Recorder, ended, lifecycle_of, states

_ASYNC_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+psycopg",
    "mariadb": "mysql+aiomysql",
    "mysql": "mysql+aiomysql",
}


@pytest.fixture
def other_url(new_database: NewDatabase) -> URL:
    """Another database with the same tables: on SQLite another file."""
    return new_database("other")


@pytest.fixture
def other(other_url: URL) -> Iterator[Engine]:
    engine = create_engine(other_url)
    yield engine
    engine.dispose()


def _refuses(bus: PersistentBus, queue: NotificationQueue, connection: Any, match: str) -> None:
    """Every call that takes a connection refuses this one, and none writes."""
    record_id = queue.schedule(Order(1), delay=3600)
    calls: list[Callable[[], Any]] = [
        lambda: bus.post(Order(1), connection=connection),
        lambda: bus.post_many([Order(1), Order(2)], connection=connection),
        lambda: bus.find(connection=connection),
        lambda: bus.history(connection=connection),
        lambda: bus.ready_count(connection=connection),
        lambda: queue.schedule(Order(1), delay=0, connection=connection),
        lambda: queue.update(record_id, event=Order(2), connection=connection),
        lambda: queue.remove(record_id, connection=connection),
        lambda: queue.find(connection=connection),
        lambda: queue.history(connection=connection),
        lambda: queue.ready_count(connection=connection),
    ]
    for call in calls:
        with pytest.raises(InvalidConnectionError, match=match) as refused:
            call()
        assert "Nothing was written" in str(refused.value)
    assert bus.find() == []
    assert [(entry.record_id, entry.event_json) for entry in queue.find()] == [
        (record_id, '{"number":1}')
    ]
    queue.remove(record_id)


def _rows(engine: Engine) -> int:
    main = entry_tables("bus_events").main
    with engine.connect() as connection:
        return int(connection.scalar(select(func.count()).select_from(main)) or 0)


def test_a_closed_connection_of_any_kind_is_refused(
    bus: PersistentBus, queue: NotificationQueue, engine: Engine
) -> None:
    connection = engine.connect()
    connection.close()
    _refuses(bus, queue, connection, "closed")
    pooled = engine.raw_connection()
    raw: Any = pooled.driver_connection
    pooled.detach()
    raw.close()
    _refuses(bus, queue, raw, "(?i)closed")


def test_a_connection_to_another_database_of_the_same_kind_is_refused(
    bus: PersistentBus, queue: NotificationQueue, other: Engine
) -> None:
    with other.connect() as connection:
        _refuses(bus, queue, connection, "the connection passed in is to")
    with Session(other) as session:
        _refuses(bus, queue, session, "the connection passed in is to")
    sessions = scoped_session(sessionmaker(other))
    _refuses(bus, queue, sessions, "the connection passed in is to")
    sessions.remove()
    assert _rows(other) == 0


def test_a_raw_connection_to_another_database_of_the_same_kind_is_refused(
    bus: PersistentBus, queue: NotificationQueue, other: Engine
) -> None:
    pooled = other.raw_connection()
    _refuses(bus, queue, pooled.driver_connection, "the connection passed in is to")
    pooled.close()
    assert _rows(other) == 0


def _refuses_foreign(bus: PersistentBus, queue: NotificationQueue, url: str) -> None:
    foreign = create_engine(url)
    with foreign.connect() as connection:
        _refuses(bus, queue, connection, "this queue lives on")
        _refuses(bus, queue, connection.connection.driver_connection, "this queue lives on")
    foreign.dispose()


@pytest.mark.postgresql
@needs.sqlite
def test_a_connection_to_a_server_is_refused_by_a_queue_in_a_file(
    bus: PersistentBus, queue: NotificationQueue
) -> None:
    _refuses_foreign(bus, queue, os.environ[URL_VARIABLES["postgresql"]])


@needs.server
def test_a_connection_to_a_file_is_refused_by_a_queue_on_a_server(
    bus: PersistentBus, queue: NotificationQueue, tmp_path: Path
) -> None:
    _refuses_foreign(bus, queue, f"sqlite:///{tmp_path}/kind.db")


def test_what_is_no_connection_is_refused(
    bus: PersistentBus, queue: NotificationQueue, engine: Engine
) -> None:
    for given in (engine, "a text", 42, object(), Session, lambda: None):
        _refuses(bus, queue, given, "Pass a SQLAlchemy Connection or Session")


def test_a_cursor_is_refused_with_advice(
    bus: PersistentBus, queue: NotificationQueue, engine: Engine
) -> None:
    pooled = engine.raw_connection()
    _refuses(bus, queue, pooled.cursor(), "That is a cursor: pass its connection")
    pooled.close()


@needs.sqlite
def test_a_database_in_memory_is_named_as_such(
    bus: PersistentBus, queue: NotificationQueue
) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        _refuses(bus, queue, connection, "is to the file ':memory:', this queue lives on")


def test_a_session_without_a_database_is_refused(
    bus: PersistentBus, queue: NotificationQueue
) -> None:
    with Session() as session:
        _refuses(bus, queue, session, "session can't be used")


@asynccontextmanager
async def _asynchronous(url: URL, database_name: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(url.set(drivername=_ASYNC_DRIVERS[database_name]))
    try:
        yield engine
    finally:
        await engine.dispose()


def test_an_asynchronous_connection_passed_to_a_synchronous_call_is_refused_with_advice(
    bus: PersistentBus, queue: NotificationQueue, database_url: URL, database_name: str
) -> None:
    async def main() -> None:
        async with _asynchronous(database_url, database_name) as engine:
            async with async_sessionmaker(engine)() as session:
                _refuses(bus, queue, session, "_async")
            async with engine.connect() as connection:
                _refuses(bus, queue, connection, "_async")
                raw = await connection.get_raw_connection()
                _refuses(bus, queue, raw.driver_connection, "connection=")

    asyncio.run(main())


def _twins(bus: PersistentBus, queue: NotificationQueue) -> list[Callable[[Any], Awaitable[Any]]]:
    return [
        lambda given: bus.post_async(Order(1), connection=given),
        lambda given: bus.post_many_async([Order(1)], connection=given),
        lambda given: bus.find_async(connection=given),
        lambda given: bus.history_async(connection=given),
        lambda given: bus.ready_count_async(connection=given),
        lambda given: queue.schedule_async(Order(1), delay=0, connection=given),
        lambda given: queue.schedule_many_async([], connection=given),
        lambda given: queue.update_async(1, event=Order(2), connection=given),
        lambda given: queue.remove_async(1, connection=given),
        lambda given: queue.find_async(connection=given),
        lambda given: queue.history_async(connection=given),
        lambda given: queue.ready_count_async(connection=given),
    ]


def test_a_synchronous_connection_passed_to_an_awaitable_twin_is_refused_with_advice(
    bus: PersistentBus, queue: NotificationQueue, engine: Engine
) -> None:
    async def main(given: Any) -> None:
        for twin in _twins(bus, queue):
            with pytest.raises(InvalidConnectionError, match="without _async"):
                await twin(given)

    with engine.connect() as connection, Session(engine) as session:
        for given in (connection, session, connection.connection.driver_connection, "a text"):
            asyncio.run(main(given))
    assert bus.find() + queue.find() == []


def test_an_asynchronous_connection_to_another_database_is_refused(
    bus: PersistentBus, queue: NotificationQueue, other_url: URL, other: Engine, database_name: str
) -> None:
    async def main() -> None:
        async with (
            _asynchronous(other_url, database_name) as engine,
            AsyncSession(engine) as session,
            engine.connect() as connection,
        ):
            for given in (session, connection):
                with pytest.raises(InvalidConnectionError, match="the connection passed in is to"):
                    await bus.post_async(Order(1), connection=given)
                with pytest.raises(InvalidConnectionError, match="the connection passed in is to"):
                    await queue.schedule_async(Order(1), delay=0, connection=given)
                await given.commit()

    asyncio.run(main())
    assert _rows(other) == 0


# -- unreachable ---------------------------------------------------------------------------------


def test_a_server_that_is_down_at_the_start_is_a_clear_error_without_the_password(
    own_server: DatabaseServer, own_server_url: URL
) -> None:
    own_server.stop()
    for database in (own_server_url, own_server_url.render_as_string(hide_password=False)):
        with pytest.raises(DatabaseUnreachableError, match="can't be reached") as refused:
            PersistentBus(database)
        message = str(refused.value)
        assert str(own_server_url.host) in message
        assert str(own_server_url.password) not in message
        assert refused.value.url == own_server_url.render_as_string(hide_password=True)


def test_a_file_that_can_not_be_a_database_is_a_clear_error(tmp_path: Path) -> None:
    no_database = tmp_path / "notes.txt"
    no_database.write_text("no database at all, but long enough to be read as a header of one" * 20)
    for path in (tmp_path / "no" / "such" / "folder.db", tmp_path, no_database):
        with pytest.raises(DatabaseUnreachableError, match="can't be reached"):
            PersistentBus(f"sqlite:///{path}")


@pytest.mark.parametrize(
    "target", ["oracle://host/db", "no url", "", "sqlite://", "sqlite:///:memory:", 42, None]
)
def test_what_is_no_database_of_ours_is_a_clear_error(target: Any) -> None:
    with pytest.raises(ConfigurationError, match="database"):
        PersistentBus(target)


@pytest.mark.parametrize("given", ["billing.db", "data/billing.db", "billing"])
def test_a_url_of_a_file_that_lacks_a_slash_is_shown_with_it(given: str) -> None:
    with pytest.raises(ConfigurationError, match=f"write sqlite:///{given}. Nothing"):
        PersistentBus(f"sqlite://{given}")


_SHORT = BusConfig(node_name="here", handler_threads=2, node=NodeConfig(lease_seconds=0.9))


def test_a_bus_whose_server_is_gone_stops_and_closes_in_time_and_without_a_raw_error(
    own_server: DatabaseServer, own_server_url: URL
) -> None:
    bus = PersistentBus(own_server_url, _SHORT)
    held = Recorder(hold=True)
    bus.subscribe(Order, held)
    bus.start()
    bus.post(Order(1))
    held.wait()
    own_server.stop()
    held.release()
    asked = time.monotonic()
    assert bus.stop() is False
    bus.close()
    assert time.monotonic() - asked < BOUND_SECONDS / 2
    assert lifecycle_of(bus).node is None
    own_server.start()
    again = PersistentBus(own_server_url, _SHORT)
    again.subscribe(Order, Recorder())
    with again:
        # It runs anew, unless the outcome of the handler that has outlived the stop comes first.
        assert states(ended(again)) == [State.PROCESSED]


def test_a_bus_outlives_a_failed_start_and_can_be_started_again(make_bus: MakeBus) -> None:
    holder, late = make_bus(node_name="one name"), make_bus(node_name="one name")
    holder.start()
    with pytest.raises(Exception, match="one name"):
        late.start()
    holder.stop()
    recorder = Recorder()
    late.subscribe(Order, recorder)
    late.start()
    late.post(Order(1))
    assert recorder.wait() == [Order(1)]
