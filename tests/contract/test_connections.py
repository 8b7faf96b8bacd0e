"""Our own connections: replaced when the server has closed them, and none left behind."""

from __future__ import annotations

import _thread
import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool, QueuePool

from sql.database import Database
from sql.database.kept_connections import KEPT
from stickybus import DatabaseUnreachableError, PersistentBus
from tests import requirements as needs
from tests.contract.conftest import MakeBus
from tests.contract.harness import Order, Recorder, ended, eventually, lifecycle_of
from tests.contract.server_sessions import KILL, sessions

HOLD = {
    "postgresql": ["BEGIN", "LOCK TABLE bus_events IN ACCESS EXCLUSIVE MODE"],
    "mariadb": ["LOCK TABLES bus_events WRITE"],
    "mysql": ["LOCK TABLES bus_events WRITE"],
}
RELEASE = {"postgresql": "ROLLBACK", "mariadb": "UNLOCK TABLES", "mysql": "UNLOCK TABLES"}
WAITING = {
    "postgresql": (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = "
        "'Lock'"
    ),
    "mariadb": (
        "SELECT id FROM information_schema.processlist WHERE db = database() AND state LIKE "
        "'Waiting for table%%'"
    ),
}
WAITING["mysql"] = WAITING["mariadb"].replace("information_schema", "performance_schema")


@needs.server
def test_posts_do_not_notice_that_the_server_has_closed_idle_connections(
    engine: Engine, make_bus: MakeBus, database_name: str
) -> None:
    bus = make_bus()
    bus.post(Order(1))
    idle = sessions(engine, database_name)
    assert idle

    with create_engine(engine.url, poolclass=NullPool).connect() as connection:
        for session in idle:
            with suppress(DBAPIError):  # it may have left by itself
                connection.exec_driver_sql(KILL[database_name].format(session))
    eventually(lambda: not idle & sessions(engine, database_name), "the sessions end")

    bus.post(Order(2))
    bus.post_many([Order(3), Order(4)])
    assert len(bus.find()) == 4


@contextmanager
def stuck(engine: Engine, database_name: str) -> Iterator[Callable[[], list[int]]]:
    """Posts wait within the block; the function tells whose sessions do."""
    autocommit = create_engine(engine.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with autocommit.connect() as holder, autocommit.connect() as watcher:
        for statement in HOLD[database_name]:
            holder.exec_driver_sql(statement)
        yield lambda: list(watcher.exec_driver_sql(WAITING[database_name]).scalars())
        holder.exec_driver_sql(RELEASE[database_name])


@needs.server
def test_a_post_whose_session_ends_in_the_middle_says_that_it_may_have_taken_effect(
    engine: Engine, make_bus: MakeBus, database_name: str
) -> None:
    """It runs on the driver, where nothing but our own code tells of a lost connection."""
    bus = make_bus()
    bus.post(Order(1))
    with stuck(engine, database_name) as waiting, ThreadPoolExecutor(1) as pool:
        post = pool.submit(bus.post, Order(2))
        [session] = eventually(waiting, "the post waits")
        with create_engine(engine.url, poolclass=NullPool).connect() as connection:
            connection.exec_driver_sql(KILL[database_name].format(session))

        with pytest.raises(DatabaseUnreachableError, match="Look before you write again"):
            post.result()

    bus.post(Order(3))
    assert len(bus.find()) == 2


@needs.server
def test_a_post_that_the_server_refuses_leaves_its_connection_in_use_and_its_payload_untold(
    engine: Engine, make_bus: MakeBus, database_name: str
) -> None:
    bus = make_bus()
    with engine.begin() as connection:
        connection.execute(
            text("ALTER TABLE bus_events ADD CONSTRAINT refusing CHECK (search_key1 < 7)")
        )
    bus.post(Order(1))
    hints = lifecycle_of(bus).hints
    eventually(lambda: hints.notifier is not None, "the session that tells other processes is open")
    before = sessions(engine, database_name)
    with pytest.raises(DBAPIError, match="refusing") as caught:
        bus.post({"note": "s3cret"}, event_name="note", search_key1=7)
    assert "s3cret" not in f"{caught.value!r} {caught.value.orig!r}"
    assert not caught.value.connection_invalidated
    record_id = bus.post(Order(2))
    # Fewer are none of the bus: those that had just been closed.
    eventually(
        lambda: sessions(engine, database_name) <= before, "no session was replaced or left behind"
    )
    assert [entry.record_id for entry in bus.find()][1:] == [record_id]


class TookTooLongError(Exception):
    """What a task runner raises in a task."""


@needs.server
@pytest.mark.parametrize("error", [KeyboardInterrupt, TookTooLongError])
def test_a_post_that_is_interrupted_raises_and_leaves_no_half_read_answer_behind(
    engine: Engine,
    make_bus: MakeBus,
    database_name: str,
    error: type[BaseException],
    request: pytest.FixtureRequest,
) -> None:
    """By Ctrl-C, or by the handler of another signal."""

    def interrupted_by(*_signal: object) -> None:
        raise error

    handler = signal.signal(signal.SIGINT, interrupted_by)
    request.addfinalizer(partial(signal.signal, signal.SIGINT, handler))
    bus = make_bus()
    bus.post(Order(1))
    with stuck(engine, database_name) as waiting, ThreadPoolExecutor(1) as pool:

        def interrupt() -> None:
            eventually(waiting, "the post waits")
            _thread.interrupt_main()

        interrupted = pool.submit(interrupt)
        with pytest.raises(error):
            bus.post(Order(2))
        interrupted.result()

    assert bus.post(Order(3)) in [entry.record_id for entry in bus.find()]


@needs.server
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
def test_a_bus_on_an_engine_with_few_connections_posts_and_reads(
    database_url: URL, size: int
) -> None:
    engine = create_engine(
        database_url, poolclass=QueuePool, pool_size=size, max_overflow=0, pool_timeout=10.0
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


@needs.postgresql
def test_the_engine_inside_an_asynchronous_one_tells_the_url_alone(
    database_url: URL, make_bus: MakeBus
) -> None:
    """Both drivers of psycopg have the same name."""
    application = create_async_engine(database_url.set(drivername="postgresql+psycopg"))
    bus = make_bus(database=application.sync_engine)
    bus.post(Order(1))
    assert len(bus.find()) == 1
    asyncio.run(application.dispose())


@needs.sqlite
def test_many_that_open_a_new_file_at_once_all_open_it(tmp_path: Path, database_name: str) -> None:
    """One time in ten SQLite refuses one of them at once, however long it may wait for locks."""
    del database_name
    together = threading.Barrier(6)

    def connect(database: Database) -> None:
        together.wait(20)
        with database.engine.connect():
            pass

    with ThreadPoolExecutor(6) as pool:
        for number in range(60):
            databases = [Database(f"sqlite:///{tmp_path}/{number}.db") for _ in range(6)]
            list(pool.map(connect, databases))
            for database in databases:
                database.close()


_READ_ONLY = {
    "postgresql": "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
}


@needs.server
def test_sessions_that_can_no_longer_write_are_replaced(
    database_url: URL, make_bus: MakeBus
) -> None:
    """As after a switch-over behind a proxy: sessions stay open on a server that is read-only."""
    engine, failed_over = create_engine(database_url), False

    def open_session(driver: Any, _record: object) -> None:
        if not failed_over:
            with driver.cursor() as cursor:
                cursor.execute(_READ_ONLY[database_url.get_backend_name()])
            driver.commit()

    event.listen(engine, "connect", open_session)
    recorder, bus = Recorder(), make_bus(database=engine)
    bus.subscribe(Order, recorder)
    with pytest.raises(DatabaseUnreachableError, match=r"(?i)takes no writes: .*read.only"):
        bus.post(Order(0))
    failed_over = True

    assert bus.post(Order(1))
    bus.post_many([Order(2), Order(3)])
    bus.start()

    recorder.wait(3)
    assert sorted(recorder.numbers()) == [1, 2, 3]
    engine.dispose()


@needs.postgresql
def test_a_database_that_writes_dates_in_another_style_changes_nothing(
    database_url: URL, engine: Engine, make_bus: MakeBus
) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(f"ALTER DATABASE {database_url.database} SET datestyle = 'SQL, DMY'")
        )
    engine.dispose()
    recorder, bus = Recorder(), make_bus()
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(1))
    assert recorder.wait() == [Order(1)]
    [entry] = ended(bus)
    assert entry.finished_date is not None
