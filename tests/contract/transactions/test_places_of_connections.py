"""Calls on a caller's connection write into the queue's tables, or are refused."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import (
    URL,
    Connection,
    Engine,
    create_engine,
    event,
    func,
    insert,
    make_url,
    select,
    text,
)
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from bus.persistent import PersistentBus
from devtools.programs import URL_VARIABLES
from devtools.server import DatabaseServer
from notifications.queue import NotificationQueue
from queue_core.errors import InvalidConnectionError
from queue_core.model.states import State
from queue_core.reading.history import History
from queue_core.running.subscriber import ExactlyOnceContext
from sql import schema
from sql.families import metadata_for
from sql.tables import entry_tables, queue_nodes
from tests import requirements as needs
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder, database_of, ended, engine_of, states

OTHER = "tenant"


@pytest.fixture
def other(engine: Engine) -> Engine:
    """The application's engine, on a database that has another schema with the same tables."""
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {OTHER}"))
    mapped = engine.execution_options(schema_translate_map={None: OTHER})
    metadata_for("bus_events", "notifications").create_all(mapped)
    return engine


def rows_elsewhere(engine: Engine) -> int:
    """How many entries stand in the other schema."""
    tables = [
        table
        for name in ("bus_events", "notifications")
        for pair in [entry_tables(name, schema=OTHER)]
        for table in (pair.main, pair.history)
    ]
    with engine.connect() as connection:
        return sum(
            int(connection.scalar(select(func.count()).select_from(table)) or 0) for table in tables
        )


def every_call(bus: PersistentBus, queue: NotificationQueue, connection: Any) -> None:
    """Make each call of a caller, in shapes that are other statements.

    Leaves 1 + 3 + 50 + 2 events and two removed entries.
    """
    record_id = bus.post(Order(1), connection=connection)
    bus.post_many([Order(number) for number in range(3)], connection=connection)
    bus.post_many([Order(number) for number in range(50)], connection=connection)
    for note in ("a" * 1_000, b"bytes"):
        bus.post({"note": str(note) * 10}, event_name="note", connection=connection)
    assert len(bus.find(connection=connection)) == 56
    assert bus.ready_count(connection=connection) == 56
    assert bus.find(record_ids=[record_id], connection=connection)
    later = queue.schedule(Order(1), delay=3600, connection=connection)
    assert queue.update(later, search_key2=5, connection=connection).search_key2 == 5
    assert queue.remove(search_key2=5, connection=connection) == 1
    [removed] = queue.history(connection=connection)
    assert removed.processing_state is State.REMOVED
    again = History(engine_of(queue).store, None).retry(removed.record_id, connection=connection)
    assert queue.remove(again, connection=connection) == 1
    queue.recur("daily", Order(1), cron="@daily", connection=connection)
    assert queue.stop_recurring("daily", connection=connection)


def _sqlalchemy(url: URL, call: Callable[[Any], None]) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"SET search_path = {OTHER}"))
        call(connection)
    with Session(engine) as session:
        assert session.scalar(text("SHOW search_path")) == OTHER
    engine.dispose()


def _psycopg(url: URL, call: Callable[[Any], None]) -> None:
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, options=f"-csearch_path={OTHER}") as connection:
        call(connection)


@needs.schemas
@pytest.mark.parametrize("open_one", [_sqlalchemy, _psycopg])
def test_another_search_path_leads_to_no_other_tables(
    bus: PersistentBus,
    queue: NotificationQueue,
    other: Engine,
    open_one: Callable[[URL, Callable[[Any], None]], None],
) -> None:
    open_one(other.url, lambda connection: every_call(bus, queue, connection))
    assert len(bus.find()) == 56
    assert states(queue.history()) == [State.REMOVED] * 2
    assert rows_elsewhere(other) == 0


@needs.schemas
@pytest.mark.parametrize("driver", ["psycopg_async", "asyncpg"])
def test_another_search_path_of_an_asynchronous_connection_leads_to_no_other_tables(
    bus: PersistentBus, queue: NotificationQueue, other: Engine, driver: str
) -> None:
    async def main() -> None:
        engine = create_async_engine(other.url.set(drivername=f"postgresql+{driver}"))
        async with engine.begin() as connection:
            await connection.execute(text(f"SET search_path = {OTHER}"))
            await bus.post_async(Order(1), connection=connection)
            await bus.post_many_async([Order(2)] * 50, connection=connection)
            record_id = await queue.schedule_async(Order(1), delay=3600, connection=connection)
            await queue.update_async(record_id, search_key2=5, connection=connection)
            await queue.remove_async(record_id, connection=connection)
        await engine.dispose()

    asyncio.run(main())
    assert len(bus.find()) == 51
    assert states(queue.history()) == [State.REMOVED]
    assert rows_elsewhere(other) == 0


@needs.schemas
def test_a_map_of_the_default_schema_leads_to_no_other_tables(
    bus: PersistentBus, queue: NotificationQueue, other: Engine
) -> None:
    with other.begin() as connection:
        every_call(bus, queue, connection.execution_options(schema_translate_map={None: OTHER}))
    assert len(bus.find()) == 56
    assert rows_elsewhere(other) == 0


def test_a_map_that_leads_to_other_tables_is_refused(
    bus: PersistentBus, queue: NotificationQueue, engine: Engine, database_name: str
) -> None:
    own = {"postgresql": "public", "sqlite": None}.get(database_name, engine.url.database)
    with engine.connect() as connection:
        mapped = connection.execution_options(schema_translate_map={own: OTHER})
        for call in (
            lambda: bus.post(Order(1), connection=mapped),
            lambda: bus.post_many([Order(1)] * 50, connection=mapped),
            lambda: queue.update(1, search_key2=5, connection=mapped),
            lambda: queue.remove(1, connection=mapped),
            lambda: bus.find(connection=mapped),
        ):
            with pytest.raises(
                InvalidConnectionError, match=r"schema_translate_map.*Nothing was written"
            ):
                call()
        mapped.rollback()
        unmapped = mapped.execution_options(schema_translate_map={"elsewhere": OTHER, own: own})
        bus.post(Order(1), connection=unmapped)
        unmapped.commit()
    assert len(bus.find()) == 1


@pytest.fixture
def tenant(engine: Engine) -> Iterator[str]:
    """Another database of the server, with the same tables."""
    name = f"{engine.url.database}_tenant"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    schema.create(engine.url.set(database=name))
    yield name
    with engine.begin() as connection:
        connection.execute(text(f"DROP DATABASE {name}"))


def _entries_of(engine: Engine, tenant: str) -> int:
    main = entry_tables("bus_events", schema=tenant).main
    with engine.connect() as connection:
        return int(connection.scalar(select(func.count()).select_from(main)) or 0)


@needs.used_databases
@pytest.mark.parametrize("raw", [False, True])
def test_a_session_that_uses_another_database_leads_to_no_other_tables(
    bus: PersistentBus, queue: NotificationQueue, engine: Engine, tenant: str, *, raw: bool
) -> None:
    with engine.begin() as connection:
        bus.post(Order(1), connection=connection)
        connection.execute(text(f"USE {tenant}"))
        given = connection.connection.driver_connection if raw else connection
        queue.schedule(Order(1), delay=3600, connection=given)
        bus.post_many([Order(number) for number in range(50)], connection=given)
        bus.post(Order(2), key="2", order_key="2", connection=given)
        connection.execute(text(f"USE {engine.url.database}"))
    assert len(bus.find()) == 52
    assert _entries_of(engine, tenant) == 0


@needs.used_databases
def test_a_handler_that_uses_another_database_harms_no_other(
    make_bus: MakeBus, engine: Engine, tenant: str
) -> None:
    bus = make_bus(handler_threads=1)
    recorder = Recorder()

    @bus.subscribe("report", exactly_once=True)
    def report(_event: dict[str, int], context: ExactlyOnceContext) -> None:
        context.connection.execute(text(f"USE {tenant}"))

    bus.subscribe("pay", recorder, name="pay", exactly_once=True)
    for name in ("report", "pay", "pay"):
        bus.post({}, event_name=name)
    bus.start()
    assert states(ended(bus, 3)) == [State.PROCESSED] * 3
    assert recorder.calls == 2


@needs.postgresql
@pytest.mark.parametrize("by", ["do_connect", "creator"])
def test_an_engine_that_connects_elsewhere_by_itself_is_refused(
    bus: PersistentBus, engine: Engine, by: str
) -> None:
    plain = engine.url.set(drivername="postgresql", database="postgres")
    conninfo = plain.render_as_string(hide_password=False)
    if by == "creator":
        routed = create_engine(engine.url, creator=lambda: psycopg.connect(conninfo))
    else:
        routed = create_engine(engine.url)
        event.listen(routed, "do_connect", lambda *_: psycopg.connect(conninfo))
    with (
        routed.connect() as connection,
        pytest.raises(InvalidConnectionError, match="is to database 'postgres'"),
    ):
        bus.post(Order(1), connection=connection)
    routed.dispose()


@needs.postgresql
def test_an_engine_without_a_database_in_its_url_is_asked_where_it_leads(
    engine: Engine,
) -> None:
    conninfo = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    made = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(conninfo))
    with PersistentBus(made) as bus, engine.begin() as theirs:
        bus.post(Order(1), connection=theirs)
    with PersistentBus(engine) as bus, made.begin() as theirs:
        bus.post(Order(1), connection=theirs)
    made.dispose()


@contextmanager
def _namesake(url: URL) -> Iterator[Engine]:
    """A database of the same name with the same tables, on the server of the other tests."""
    server = make_url(os.environ[URL_VARIABLES[url.get_backend_name()]]).set(
        drivername=url.drivername
    )
    admin = create_engine(server, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {url.database}"))
    schema.create(server.set(database=url.database))
    engine = create_engine(server.set(database=url.database))
    try:
        yield engine
    finally:
        engine.dispose()
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {url.database}"))


def test_a_database_of_the_same_name_on_another_server_is_refused(
    own_server: DatabaseServer, own_server_url: URL
) -> None:
    bus = PersistentBus(own_server_url)
    with (
        _namesake(_as_url(own_server, own_server_url)) as elsewhere,
        elsewhere.connect() as connection,
    ):
        for given in (connection, connection.connection.driver_connection) * 2:
            with pytest.raises(
                InvalidConnectionError, match=r"on the server.*Nothing was written"
            ) as refused:
                bus.post(Order(1), connection=given)
            # A system identifier is the cluster's.
            assert ("start a worker" in str(refused.value)) is (own_server.name != "postgresql")
        connection.commit()
        main = entry_tables("bus_events").main
        assert connection.scalar(select(func.count()).select_from(main)) == 0
    bus.close()


@needs.server
def test_after_a_fail_over_the_server_is_asked_for_its_name_anew(
    bus: PersistentBus, engine: Engine
) -> None:
    vars(database_of(bus))["server"] = "the one before"  # as it was remembered
    with engine.begin() as connection:
        bus.post(Order(1), connection=connection)
    assert len(bus.find()) == 1


@pytest.mark.parametrize(
    "own_server",
    [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("mariadb", "mysql")],
    indirect=True,
)
def test_another_server_of_the_same_cluster_is_known_by_the_nodes_of_the_database(
    own_server: DatabaseServer, own_server_url: URL
) -> None:
    """A replica after a fail-over has another name; here its rows are copied by hand."""
    with (
        PersistentBus(own_server_url) as bus,
        _namesake(_as_url(own_server, own_server_url)) as replica,
    ):
        nodes = database_of(bus).fetch(
            lambda own: own.execute(select(queue_nodes)).mappings().all()
        )
        with replica.begin() as connection:
            connection.execute(insert(queue_nodes), [dict(node) for node in nodes])
            bus.post(Order(1), connection=connection)
    bus.close()


def _as_url(server: DatabaseServer, url: URL) -> URL:
    return url.set(
        drivername="postgresql+psycopg" if server.name == "postgresql" else f"{server.name}+pymysql"
    )


@needs.server
def test_where_a_connection_leads_is_asked_once(bus: PersistentBus, engine: Engine) -> None:
    texts = list[str]()

    def record(_connection: Connection, _cursor: object, statement: str, *_rest: object) -> None:
        texts.append(statement)

    event.listen(engine, "before_cursor_execute", record)
    for number in range(3):
        with engine.begin() as connection:
            bus.post(Order(number), connection=connection)
        if not number:
            texts.clear()
    assert len(texts) == 2
