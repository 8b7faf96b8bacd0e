"""Retries, discards and recurring schedules in the caller's transaction: they are part of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import URL, Engine, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from bus.persistent import PersistentBus
from notifications.queue import NotificationQueue
from queue_core.errors import EntryNotChangeableError, EntryNotFoundError
from queue_core.model.retry_policies import ImmediateRetries
from queue_core.model.states import State
from sql.tables import queue_replays
from stickybus import Inspector
from stickybus.testing import drain
from tests.contract.conftest import MakeBus, MakeService
from tests.contract.harness import Order, Recorder, ended, states
from tests.contract.transactions.awaited import connected as connected_async
from tests.contract.transactions.callers import connect, given

__all__ = ["connect", "given"]

HOUR = timedelta(hours=1)


@pytest.fixture
def bus(make_bus: MakeBus) -> PersistentBus:
    """A bus whose handler always fails, without retries; not started."""
    bus = make_bus(retry=ImmediateRetries(0))

    def fail(_order: Order) -> None:
        raise ValueError("no")

    bus.subscribe(Order, fail)
    return bus


@pytest.fixture
def failed(bus: PersistentBus) -> int:
    """The id of an entry that ended FAILED."""
    record_id = bus.post(Order(1))
    drain(bus)
    assert states(bus.history()) == [State.FAILED]
    return record_id


def dead_letters(inspector: Inspector) -> list[int]:
    return [one.entry.record_id for one in inspector.history(dead_letters=True)]


def tries(engine: Engine) -> int:
    """How many entries are known to have been tried again, or discarded."""
    with engine.connect() as connection:
        return int(connection.scalar(select(func.count()).select_from(queue_replays)) or 0)


def test_a_retry_that_is_rolled_back_leaves_nothing(
    bus: PersistentBus,
    failed: int,
    engine: Engine,
    given: Any,
    inspector: Inspector,
) -> None:
    again = bus.retry(failed, connection=given)
    assert [entry.replay_of for entry in bus.find(connection=given)] == [failed]
    given.rollback()
    assert bus.find() == []
    assert drain(bus) == []
    assert tries(engine) == 0
    assert dead_letters(inspector) == [failed]
    assert bus.retry(failed) > 0
    assert again > 0


def test_a_retry_that_is_committed_runs(
    make_bus: MakeBus,
    failed: int,
    given: Any,
) -> None:
    other, recorder = make_bus(poll_interval_seconds=0.05), Recorder()
    other.subscribe(Order, recorder)
    other.start()
    again = other.retry(failed, connection=given)
    assert recorder.calls == 0
    given.commit()
    assert recorder.wait() == [Order(1)]
    assert [(entry.record_id, entry.replay_of) for entry in ended(other, 2)[1:]] == [
        (again, failed)
    ]


def test_a_refused_retry_leaves_the_transaction_usable(
    bus: PersistentBus, failed: int, engine: Engine
) -> None:
    bus.retry(failed)
    with engine.begin() as connection:
        with pytest.raises(EntryNotChangeableError, match="tried again as"):
            bus.retry(failed, connection=connection)
        with pytest.raises(EntryNotFoundError):
            bus.retry(10**9, connection=connection)
        bus.post(Order(2), connection=connection)
    assert len(bus.find()) == 2


def test_a_discard_is_part_of_the_transaction(
    bus: PersistentBus,
    failed: int,
    given: Any,
    inspector: Inspector,
) -> None:
    assert bus.discard(failed, connection=given)
    given.rollback()
    assert dead_letters(inspector) == [failed]
    assert bus.discard(failed, connection=given)
    assert not bus.discard(failed, connection=given)
    given.commit()
    assert dead_letters(inspector) == []


def test_what_was_discarded_stays_in_history_and_may_be_tried_again(
    bus: PersistentBus, failed: int, inspector: Inspector
) -> None:
    assert inspector.queues()[0].dead_letters == 1
    assert bus.discard(failed)
    assert inspector.queues()[0].dead_letters == 0
    assert states(bus.history()) == [State.FAILED]
    assert not bus.discard(failed)
    again = bus.retry(failed)
    with pytest.raises(EntryNotChangeableError, match=f"tried again as {again}"):
        bus.discard(failed)
    drain(bus)
    assert dead_letters(inspector) == [again]
    with pytest.raises(EntryNotChangeableError, match=f"tried again as {again}, which is FAILED"):
        bus.discard(failed)
    assert bus.discard(again)
    assert dead_letters(inspector) == []


def test_only_what_ended_failed_is_discarded(
    bus: PersistentBus, queue: NotificationQueue, make_service: MakeService
) -> None:
    with pytest.raises(EntryNotFoundError):
        bus.discard(bus.post(Order(1)))
    record_id = queue.schedule(Order(1), delay=HOUR)
    queue.remove(record_id)
    with pytest.raises(EntryNotChangeableError, match="is REMOVED; only FAILED ones can be"):
        make_service().discard(record_id)


def test_a_recurring_schedule_is_declared_and_ended_in_the_transaction(
    queue: NotificationQueue, given: Any
) -> None:
    queue.recur("daily", Order(1), cron="@daily", connection=given)
    assert [one.name for one in queue.recurring(connection=given)] == ["daily"]
    given.rollback()
    assert queue.recurring() == []

    declared = queue.recur("daily", Order(1), every=60, connection=given)
    given.commit()
    assert queue.recurring() == [declared]

    assert queue.stop_recurring("daily", connection=given)
    assert not queue.stop_recurring("daily", connection=given)
    given.rollback()
    assert queue.recurring() == [declared]
    assert queue.stop_recurring("daily", connection=given)
    given.commit()
    assert queue.recurring() == []


def test_a_running_service_fires_a_schedule_soon_after_the_callers_commit(
    make_service: MakeService, engine: Engine
) -> None:
    service, recorder = make_service(poll_interval_seconds=0.05), Recorder()
    queue = service.create_queue("shop", "reminders", recorder, event_types=[Order])
    service.start()
    with engine.begin() as connection:
        queue.recur("often", Order(1), every=0.05, connection=connection)
    assert recorder.wait(2)[:2] == [Order(1)] * 2


def test_awaitable_twins_are_part_of_the_transaction(
    database_url: URL,
    bus: PersistentBus,
    failed: int,
    queue: NotificationQueue,
    inspector: Inspector,
) -> None:
    async def work(connection: AsyncConnection) -> None:
        await queue.recur_async("daily", Order(1), cron="@daily", connection=connection)
        assert len(await queue.recurring_async(connection=connection)) == 1
        assert await queue.stop_recurring_async("daily", connection=connection)
        assert await bus.discard_async(failed, connection=connection)
        again = await bus.retry_async(failed, all_subscribers=True, connection=connection)
        found = await bus.find_async(connection=connection)
        assert [entry.record_id for entry in found] == [again]
        await connection.rollback()

    async def main() -> None:
        async with connected_async(database_url) as engine, engine.connect() as connection:
            await work(connection)

    asyncio.run(main())
    assert bus.find() == []
    assert queue.recurring() == []
    assert dead_letters(inspector) == [failed]
