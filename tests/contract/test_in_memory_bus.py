"""The in-memory bus: the persistent bus's face, for tests and for events that may be lost."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from bus import memory
from bus.memory import InMemoryBus
from bus.persistent import PersistentBus
from queue_core.errors import (
    ConfigurationError,
    InvalidConnectionError,
    InvalidPostError,
    LifecycleError,
)
from queue_core.model.config import BusConfig
from queue_core.model.posting import Posting
from queue_core.model.retry import GiveUp
from queue_core.model.retry_policies import ExponentialRetries
from queue_core.model.states import State
from queue_core.running.handler_pool import HandlerPool
from tests.contract.harness import (
    BOUND_SECONDS,
    Order,
    Recorder,
    ended,
    eventually,
    states,
    with_savepoints,
)


@pytest.fixture
def bus() -> Iterator[InMemoryBus]:
    with InMemoryBus(BusConfig(handler_threads=4)) as bus:
        yield bus


@pytest.fixture
def recorder(bus: InMemoryBus) -> Recorder:
    """The subscriber of the bus's orders."""
    recorder = Recorder()
    bus.subscribe(Order, recorder, name="recorder")
    return recorder


@pytest.fixture
def engine(engine: Engine) -> Engine:
    """The application's engine."""
    return with_savepoints(engine)


def _delivered(bus: InMemoryBus, recorder: Recorder) -> list[int]:
    bus.wait_until_idle()
    return recorder.numbers()


def test_an_event_is_delivered_as_a_copy(bus: InMemoryBus, recorder: Recorder) -> None:
    order = Order(1)
    record_id = bus.post(order, user_token="t", search_key1=4)
    assert _delivered(bus, recorder) == [1]
    assert recorder.events[0] is not order
    assert (recorder.contexts[0].record_id, recorder.contexts[0].search_key1) == (record_id, 4)
    assert states(bus.history()) == [State.PROCESSED]


def test_many_events_and_names_and_subtypes_work_as_on_the_persistent_bus(
    bus: InMemoryBus, recorder: Recorder
) -> None:
    named = Recorder()
    bus.subscribe("named", named, name="named")
    ids = bus.post_many([Order(1), Posting(event={"a": 1}, event_name="named"), Order(2)])
    assert ids == sorted(set(ids))
    assert _delivered(bus, recorder) == [1, 2]
    assert named.events == [{"a": 1}]


def test_only_the_subscriber_that_failed_is_retried_up_to_four_runs(
    bus: InMemoryBus, recorder: Recorder
) -> None:
    failing = Recorder(failures=99)
    bus.subscribe(Order, failing, name="failing")
    bus.post(Order(1))
    bus.wait_until_idle()
    assert (recorder.calls, failing.calls) == (1, 4)
    (entry,) = bus.history(states=[State.FAILED])
    assert entry.error_count == 4
    assert "the handler fails" in (entry.last_error or "")


@pytest.mark.parametrize("others", [0, 1])
def test_a_retry_that_a_policy_puts_off_runs_at_once(bus: InMemoryBus, others: int) -> None:
    later = ExponentialRetries(initial_seconds=3600.0, max_retries=2)
    failing, impatient, other = Recorder(failures=99), Recorder(failures=99), Recorder()
    bus.subscribe(Order, failing, name="failing", retry=later)
    if others:
        bus.subscribe(Order, other, name="other")
        bus.subscribe(Order, impatient, name="impatient")
    bus.post(Order(1))
    bus.wait_until_idle()
    assert (failing.calls, other.calls, impatient.calls) == (3, others, 4 * others)
    assert states(bus.history()) == [State.FAILED]


def test_a_handler_that_gives_up_is_not_run_again(bus: InMemoryBus) -> None:
    failing = Recorder(failures=99, error=GiveUp("enough"))
    bus.subscribe(Order, failing)
    bus.post(Order(1))
    bus.wait_until_idle()
    assert failing.calls == 1
    assert states(bus.history()) == [State.FAILED]


def test_serial_and_coroutine_handlers_work(bus: InMemoryBus) -> None:
    serial, seen = Recorder(), list[int]()

    @bus.subscribe(Order)
    async def note(order: Order) -> None:
        await asyncio.sleep(0)
        seen.append(order.number)

    bus.subscribe(Order, serial, name="serial", serial=True)
    bus.post_many(Order(number) for number in range(20))
    bus.wait_until_idle()
    assert (sorted(seen), serial.numbers(), serial.most_running) == (
        list(range(20)),
        list(range(20)),
        1,
    )


def test_what_is_posted_before_the_start_or_after_the_stop_waits_for_the_next_start() -> None:
    bus, recorder = InMemoryBus(BusConfig(handler_threads=1)), Recorder()
    bus.subscribe(Order, recorder)
    bus.post(Order(1))
    assert recorder.calls == 0
    bus.start()
    assert _delivered(bus, recorder) == [1]
    with pytest.raises(LifecycleError):
        bus.start()
    bus.stop()
    bus.post(Order(2))
    assert states(bus.find()) == [State.IN_PROCESSING]
    bus.start()
    assert _delivered(bus, recorder) == [1, 2]
    bus.stop()
    assert bus.truncate_history() == 2


def test_what_is_posted_while_the_bus_starts_is_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    bus, recorder = InMemoryBus(BusConfig(handler_threads=1)), Recorder()
    bus.subscribe(Order, recorder)

    def posted_meanwhile(*arguments: Any) -> HandlerPool:
        bus.post(Order(1))
        return HandlerPool(*arguments)

    monkeypatch.setattr(memory, "HandlerPool", posted_meanwhile)
    with bus:
        assert _delivered(bus, recorder) == [1]


class _ThenOnce:
    """A lock that calls `then` once, right after it was released."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.then = list[Callable[[], object]]()

    def __enter__(self) -> None:
        self._lock.__enter__()

    def __exit__(self, *raised: object) -> None:
        self._lock.__exit__(*raised)
        if self.then:
            self.then.pop()()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)


def test_a_post_that_a_start_comes_between_is_delivered_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    condition, recorder = threading.Condition(), Recorder()
    between = _ThenOnce(condition)
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Condition", lambda: between)
        bus = InMemoryBus(BusConfig(handler_threads=1))
    bus.subscribe(Order, recorder)
    between.then.append(bus.start)
    bus.post(Order(1))
    bus.post(Order(2))
    assert _delivered(bus, recorder) == [1, 2]
    bus.stop()


def test_what_still_runs_after_a_stop_is_not_run_beside_itself_by_the_next_start() -> None:
    recorder = Recorder(hold=True, failures=1)
    bus = InMemoryBus(BusConfig(handler_threads=1))
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post_many([Order(1), Order(2)])
    recorder.wait()
    assert not bus.stop(0.0)

    with bus:
        recorder.wait(2)
        assert [event.number for event in recorder.events] == [1, 2]
        recorder.release()
        assert _delivered(bus, recorder) == [1, 1, 2]
    assert states(bus.history()) == [State.PROCESSED] * 2


def test_a_retry_that_comes_while_the_bus_stops_waits_for_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder, pools = Recorder(hold=True, failures=1), list[HandlerPool]()

    def kept(*arguments: Any) -> HandlerPool:
        pools.append(HandlerPool(*arguments))
        return pools[-1]

    monkeypatch.setattr(memory, "HandlerPool", kept)
    bus = InMemoryBus(BusConfig(handler_threads=1))
    bus.subscribe(Order, recorder)
    bus.start()
    bus.post(Order(1))
    recorder.wait()
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(bus.stop, BOUND_SECONDS)
        eventually(lambda: not pools[-1].accepting, "the stop is under way")
        recorder.release()
        assert stopping.result()
    assert [entry.error_count for entry in bus.find()] == [1]
    assert recorder.calls == 1
    with bus:
        assert _delivered(bus, recorder) == [1, 1]


def test_a_commit_delivers_and_a_rollback_does_not(
    engine: Engine, bus: InMemoryBus, recorder: Recorder
) -> None:
    with engine.connect() as connection:
        bus.post(Order(1), connection=connection)
        assert bus.find() == []
        connection.commit()
        bus.post(Order(2), connection=connection)
        connection.rollback()
    with Session(engine) as session:
        bus.post(Order(3), connection=session)
        session.commit()
        bus.post(Order(4), connection=session)
    assert _delivered(bus, recorder) == [1, 3]


def test_what_a_savepoint_rolled_back_is_not_delivered(
    engine: Engine, bus: InMemoryBus, recorder: Recorder
) -> None:
    with engine.begin() as connection:
        bus.post(Order(1), connection=connection)
        outer = connection.begin_nested()
        bus.post(Order(2), connection=connection)
        with connection.begin_nested():
            bus.post(Order(3), connection=connection)
        bus.post(Order(4), connection=connection)
        outer.rollback()
        bus.post(Order(5), connection=connection)
        with connection.begin_nested():
            bus.post(Order(6), connection=connection)
    assert _delivered(bus, recorder) == [1, 5, 6]


def test_a_savepoint_without_a_post_of_its_own_takes_back_those_of_its_inner_ones(
    engine: Engine, bus: InMemoryBus, recorder: Recorder
) -> None:
    with engine.begin() as connection:
        bus.post(Order(1), connection=connection)
        outer = connection.begin_nested()
        with connection.begin_nested():
            bus.post(Order(2), connection=connection)
        outer.rollback()
    assert _delivered(bus, recorder) == [1]


def test_a_broken_connection_can_be_closed_and_delivers_nothing(
    engine: Engine, bus: InMemoryBus, recorder: Recorder
) -> None:
    with engine.connect() as connection:
        bus.post(Order(1), connection=connection)
        connection.invalidate()
    with engine.begin() as connection:
        bus.post(Order(2), connection=connection)
    assert _delivered(bus, recorder) == [2]


def test_an_autocommit_connection_delivers_without_a_commit(
    database_name: str, engine: Engine, bus: InMemoryBus, recorder: Recorder
) -> None:
    plain = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    with plain.connect() as connection:
        bus.post(Order(1), connection=connection)
        assert _delivered(bus, recorder) == [1]
        connection.rollback()
    plain.dispose()


def test_two_phase_and_asynchronous_sessions_deliver_with_their_commit(
    engine: Engine, bus: InMemoryBus, recorder: Recorder
) -> None:
    drivers = {
        "sqlite": "sqlite+aiosqlite",
        "postgresql": "postgresql+psycopg_async",
        "mysql": "mysql+aiomysql",
    }

    async def main() -> None:
        asynchronous = create_async_engine(
            engine.url.set(drivername=drivers[engine.url.get_backend_name()])
        )
        async with AsyncSession(asynchronous) as session:
            await bus.post_async(Order(1), connection=session)
            await session.commit()
            await bus.post_many_async([Order(2)], connection=session)
            await session.rollback()
        await asynchronous.dispose()
        await bus.post_async(Order(3))

    asyncio.run(main())
    if engine.dialect.name != "sqlite":
        with engine.connect() as connection:
            transaction = connection.begin_twophase()
            bus.post(Order(4), connection=connection)
            transaction.prepare()
            transaction.commit()
    expected = [1, 3] if engine.dialect.name == "sqlite" else [1, 3, 4]
    assert _delivered(bus, recorder) == expected


def test_what_it_can_not_do_is_refused(bus: InMemoryBus, engine: Engine) -> None:
    with pytest.raises(ConfigurationError, match="exactly_once"):
        bus.subscribe(Order, lambda _order, context: context, exactly_once=True)
    with pytest.raises(InvalidConnectionError, match="Nothing was posted"):
        bus.post(Order(1), connection=object())  # type: ignore[call-overload]
    with pytest.raises(InvalidPostError):
        bus.post({"no": "name"})
    assert bus.find() == bus.history() == []


def test_its_handler_options_are_those_of_the_persistent_bus() -> None:
    def options(call: object) -> set[str]:
        assert callable(call)
        return set(inspect.signature(call).parameters)

    for name in ("subscribe", "unsubscribe", "register_event", "post_many"):
        assert options(getattr(InMemoryBus, name)) == options(getattr(PersistentBus, name)), name


def test_it_can_be_searched_and_counted_like_the_persistent_bus(
    bus: InMemoryBus, recorder: Recorder
) -> None:
    bus.post(Order(1), search_key1=1, search_key2=2)
    bus.wait_until_idle()
    assert len(ended(bus)) == 1


def test_a_connection_reused_after_a_rollback_starts_anew(
    engine: Engine, bus: InMemoryBus, recorder: Recorder
) -> None:
    def post(connection: Connection, number: int) -> None:
        bus.post(Order(number), connection=connection)

    for number in range(6):
        with engine.connect() as connection:
            post(connection, number)
            if number % 2:
                connection.commit()
    assert _delivered(bus, recorder) == [1, 3, 5]


def test_what_is_posted_is_checked_and_kept_as_on_the_persistent_bus() -> None:
    recorder = Recorder()
    with InMemoryBus() as bus:
        bus.subscribe(Order, recorder)
        with pytest.raises(InvalidPostError, match="search_key1"):
            bus.post(Order(1), search_key1=7.5)  # type: ignore[call-overload]  # that is the fault
        bus.post(Order(2), search_key1=7, user_token="token", headers={"traceparent": "00-1"})
        recorder.wait()
        bus.wait_until_idle()
    (context,) = recorder.contexts
    assert (context.search_key1, context.user_token, context.headers) == (
        7,
        "token",
        {"traceparent": "00-1"},
    )
