"""The awaitable twins, with psycopg's asyncio connection, asyncpg, aiosqlite and aiomysql."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from bus.persistent import PersistentBus
from queue_core.errors import InvalidConnectionError, InvalidPostError
from queue_core.model.posting import Posting
from tests import requirements as needs
from tests.contract.conftest import MakeBus
from tests.contract.harness import (
    BOUND_SECONDS,
    Machine,
    Order,
    Recorder,
    database_of,
    delivered,
    ended,
    listening,
)
from tests.contract.transactions.awaited import (
    Given,
    connected,
    each_kind,
    open_connection,
    open_session,
    run_on,
)


@pytest.fixture
def bus(make_bus: MakeBus, recorder: Recorder) -> PersistentBus:
    """A running bus with one subscriber."""
    bus = make_bus()
    bus.subscribe(Order, recorder)
    return bus.start()


@each_kind
def test_an_awaited_commit_delivers(
    database_url: URL,
    bus: PersistentBus,
    recorder: Recorder,
    open_one: Callable[[AsyncEngine], Given],
) -> None:
    ids = list[int]()

    async def work(given: Given) -> None:
        ids.append(await bus.post_async(Order(1), search_key2=3, user_token="t", connection=given))
        ids.extend(
            await bus.post_many_async(
                [Order(2), Posting(event={"number": 3}, event_name="Order.dict")], connection=given
            )
        )
        assert [
            entry.record_id for entry in await bus.find_async(search_key2=3, connection=given)
        ] == ids[:1]
        assert await bus.history_async(connection=given) == []
        assert bus.find() == []
        assert recorder.calls == 0
        await given.commit()

    bus.subscribe("Order.dict", lambda _event: None, name="dicts")
    run_on(database_url, open_one, work)
    assert [entry.record_id for entry in ended(bus, 3)] == ids
    assert recorder.numbers() == [1, 2]


@each_kind
def test_an_awaited_rollback_delivers_nothing(
    database_url: URL,
    bus: PersistentBus,
    recorder: Recorder,
    open_one: Callable[[AsyncEngine], Given],
) -> None:
    async def work(given: Given) -> None:
        await bus.post_async(Order(1), connection=given)
        await bus.post_many_async([Order(number) for number in range(2, 40)], connection=given)
        await given.rollback()

    run_on(database_url, open_one, work)
    assert delivered(bus, recorder) == []
    assert bus.find() == []


@each_kind
def test_a_large_awaited_batch_is_delivered_whole(
    database_url: URL,
    bus: PersistentBus,
    recorder: Recorder,
    open_one: Callable[[AsyncEngine], Given],
) -> None:
    async def work(given: Given) -> None:
        ids = await bus.post_many_async((Order(number) for number in range(60)), connection=given)
        assert ids == sorted(set(ids))
        await given.commit()

    run_on(database_url, open_one, work)
    ended(bus, 60)
    assert recorder.numbers() == list(range(60))


def test_an_awaited_savepoint_that_is_rolled_back_takes_its_events_along(
    database_url: URL, bus: PersistentBus, recorder: Recorder
) -> None:
    async def work(given: Given) -> None:
        await bus.post_async(Order(1), connection=given)
        savepoint = await given.begin_nested()
        await bus.post_async(Order(2), connection=given)
        await savepoint.rollback()
        await given.commit()

    run_on(database_url, open_session, work)
    recorder.wait()
    assert delivered(bus, recorder) == [1]


def test_an_awaited_autocommit_delivers_at_once(
    database_url: URL, bus: PersistentBus, recorder: Recorder
) -> None:
    async def main() -> None:
        async with connected(database_url) as engine, engine.connect() as plain:
            connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
            await bus.post_async(Order(1), connection=connection)
            await asyncio.to_thread(recorder.wait, 1)
            await connection.rollback()

    asyncio.run(main())
    assert delivered(bus, recorder) == [1]


def test_without_a_connection_the_event_loop_is_not_blocked(
    bus: PersistentBus, recorder: Recorder
) -> None:
    threads = list[threading.Thread]()

    async def main() -> None:
        first = await bus.post_async(Order(1), search_key1=1)
        rest = await bus.post_many_async([Order(2), Order(3)])
        assert len({first, *rest}) == 3
        await asyncio.to_thread(recorder.wait, 3)
        await asyncio.to_thread(ended, bus, 3)
        assert [entry.search_key1 for entry in await bus.history_async(search_key1=1)] == [1]
        assert await bus.find_async() == []
        assert await bus.ready_count_async() == 0
        threads.append(threading.current_thread())

    asyncio.run(main())
    assert recorder.numbers() == [1, 2, 3]


@contextmanager
def _own_threads(bus: PersistentBus) -> Iterator[list[threading.Thread]]:
    """The threads in which the library's own connections run statements."""
    threads = list[threading.Thread]()

    def note(*_: object) -> None:
        threads.append(threading.current_thread())

    with listening(database_of(bus), before_cursor_execute=note):
        yield threads


@needs.many_writers
def test_with_a_connection_the_librarys_own_reads_do_not_block_the_event_loop(
    database_url: URL, make_bus: MakeBus, machine: Machine
) -> None:
    bus = make_bus()
    bus.post(Order(1), key="there")
    machine.suspend(600)  # so that the database's clock is read again
    answers = list[Any]()

    async def work(given: Given) -> None:
        with _own_threads(bus) as threads:
            first = await bus.post_async(Order(2), key="new", connection=given)
            again = await bus.post_async(Order(3), key="new", connection=given)
            there = await bus.post_async(Order(4), key="there", connection=given)
            group = await bus.open_group_async(connection=given)
            await bus.post_async(Order(5), group=group, after=[first], connection=given)
            await given.commit()
            answers.extend(one.created for one in (first, again, there))
        assert threads
        assert threading.current_thread() not in threads

    run_on(database_url, open_session, work)
    assert answers == [True, False, False]


@needs.many_writers
def test_two_awaited_posts_with_a_new_key_hold_up_nobody_else_on_the_event_loop(
    database_url: URL, make_bus: MakeBus
) -> None:
    bus, gaps = make_bus(), list[float]()

    async def post(engine: AsyncEngine, number: int) -> bool:
        async with AsyncSession(engine) as session:
            posted = await bus.post_async(
                Order(number), key="a", key_wait=BOUND_SECONDS, connection=session
            )
            await session.commit()
            return posted.created

    async def tick() -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - last)
            last = time.monotonic()

    async def main() -> tuple[bool, bool]:
        async with connected(database_url) as engine:
            ticking = asyncio.create_task(tick())
            try:
                return await asyncio.gather(post(engine, 1), post(engine, 2))
            finally:
                ticking.cancel()

    assert sorted(asyncio.run(main())) == [False, True]
    assert max(gaps) < BOUND_SECONDS / 4


def test_twins_count_what_is_ready_inside_the_transaction(
    database_url: URL, make_bus: MakeBus
) -> None:
    bus = make_bus()

    async def work(given: Given) -> None:
        await bus.post_async(Order(1), connection=given)
        assert await bus.ready_count_async(connection=given) == 1
        await given.rollback()

    run_on(database_url, open_connection, work)
    assert bus.ready_count() == 0


def test_an_error_of_a_twin_leaves_the_transaction_usable(
    database_url: URL, bus: PersistentBus, recorder: Recorder
) -> None:
    async def work(given: Given) -> None:
        with pytest.raises(InvalidPostError):
            await bus.post_async({"no": "name"}, connection=given)
        await bus.post_async(Order(1), connection=given)
        await given.commit()

    run_on(database_url, open_session, work)
    assert recorder.wait() == [Order(1)]


def test_the_wrong_kind_of_connection_is_refused_with_advice(
    database_url: URL, bus: PersistentBus, make_bus: MakeBus
) -> None:
    async def main() -> None:
        async with connected(database_url) as engine, engine.connect() as connection:
            await connection.execute(text("SELECT 1"))
            with pytest.raises(InvalidConnectionError, match="_async"):
                bus.post(Order(1), connection=connection)  # type: ignore[call-overload]
            with pytest.raises(InvalidConnectionError, match="without _async"):
                await bus.post_async(Order(1), connection="no connection")  # type: ignore[call-overload]

    asyncio.run(main())
    assert bus.find() == []


@needs.notifies
@each_kind
def test_asyncpg_delivers_at_its_commit_at_once_and_nothing_at_its_rollback(
    database_url: URL, make_bus: MakeBus, open_one: Callable[[AsyncEngine], Given]
) -> None:
    bus, recorder = make_bus(poll_interval_seconds=600.0), Recorder()
    bus.subscribe(Order, recorder)
    bus.start()

    async def main() -> None:
        engine = create_async_engine(database_url.set(drivername="postgresql+asyncpg"))
        async with open_one(engine) as given:
            await bus.post_many_async([Order(number) for number in range(3, 40)], connection=given)
            await given.rollback()
            await bus.post_async(Order(1), search_key2=5, connection=given)
            await bus.post_many_async([Order(2)], connection=given)
            assert [
                entry.search_key2 for entry in await bus.find_async(search_key2=5, connection=given)
            ] == [5]
            await given.commit()
        await engine.dispose()

    asyncio.run(main())
    ended(bus, 2)
    assert recorder.numbers() == [1, 2]
