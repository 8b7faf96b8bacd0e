"""Our own connections: replaced when the server has closed them, and none left behind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import URL, Engine, create_engine, text
from sqlalchemy.pool import NullPool, QueuePool

from sql.database import KEPT
from stickybus import DatabaseUnreachableError, PersistentBus
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, eventually, on_postgresql, on_servers

SESSIONS = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    "mariadb": "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()",
}
KILL = {"postgresql": "SELECT pg_terminate_backend({})", "mariadb": "KILL {}"}


def sessions(engine: Engine, database_name: str) -> list[int]:
    with create_engine(engine.url, poolclass=NullPool).connect() as connection:
        return list(connection.execute(text(SESSIONS[database_name])).scalars())


@on_servers
def test_posts_do_not_notice_that_the_server_has_closed_idle_connections(
    engine: Engine, make_bus: MakeBus, database_name: str
) -> None:
    bus = make_bus()
    bus.post(Order(1))
    idle = sessions(engine, database_name)
    assert idle

    with create_engine(engine.url, poolclass=NullPool).connect() as connection:
        for session in idle:
            connection.exec_driver_sql(KILL[database_name].format(session))
    eventually(lambda: not set(idle) & set(sessions(engine, database_name)), "the sessions end")

    bus.post(Order(2))
    bus.post_many([Order(3), Order(4)])
    assert len(bus.find()) == 4


@on_postgresql
def test_a_post_whose_session_ends_in_the_middle_says_that_it_may_have_taken_effect(
    engine: Engine, make_bus: MakeBus
) -> None:
    """It runs on the driver, where nothing but our own code tells of a lost connection."""
    bus = make_bus()
    bus.post(Order(1))
    waiting = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with (
        create_engine(engine.url, poolclass=NullPool).connect() as holder,
        create_engine(engine.url, poolclass=NullPool, isolation_level="AUTOCOMMIT").connect() as watcher,
        ThreadPoolExecutor(1) as pool,
    ):
        holder.exec_driver_sql("LOCK TABLE bus_events IN ACCESS EXCLUSIVE MODE")
        post = pool.submit(bus.post, Order(2))
        eventually(lambda: watcher.exec_driver_sql(f"SELECT 1 {waiting}").all(), "the post waits")
        watcher.exec_driver_sql(f"SELECT pg_terminate_backend(pid) {waiting}")

        with pytest.raises(DatabaseUnreachableError, match="look before you write it again"):
            post.result()

    bus.post(Order(3))
    assert len(bus.find()) == 2


@on_servers
@pytest.mark.parametrize("threads", [1, KEPT + 2])
def test_a_closed_bus_leaves_no_session_behind(
    engine: Engine, make_bus: MakeBus, database_name: str, threads: int
) -> None:
    bus = make_bus()
    bus.start()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(bus.post, [Order(number) for number in range(10 * threads)]))
    assert sessions(engine, database_name)

    bus.close()

    eventually(lambda: not sessions(engine, database_name), "the sessions end")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_bus_on_an_engine_with_few_connections_posts_and_reads(database_url: URL, size: int) -> None:
    engine = create_engine(
        database_url, poolclass=QueuePool, pool_size=size, max_overflow=0, pool_timeout=2.0
    )
    bus = PersistentBus(engine)
    try:
        for number in range(5):
            with ThreadPoolExecutor(size) as pool:
                list(pool.map(bus.post, [Order(number)] * size))
            bus.post_many([Order(number)] * 2)
            assert len(bus.find()) == (number + 1) * (size + 2)
    finally:
        bus.close()
        engine.dispose()
