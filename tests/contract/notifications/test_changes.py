"""Notifications that are changed or removed before they fire."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from queue_core.runtime.manual_clock import ManualClock
from stickybus import (
    KEYLESS,
    EntryNotChangeableError,
    EntryNotFoundError,
    InvalidPostError,
    NotificationQueue,
    NotificationService,
    ScheduledRetries,
    State,
)
from stickybus.testing import consume_one
from tests.contract.conftest import MakeService
from tests.contract.harness import Order, Recorder, ended, states
from tests.contract.notifications.punctual import FAR, LATE_SECONDS, Punctual, orders

# -- moved ----------------------------------------------------------------------------------------


def test_an_update_changes_payload_keys_and_date(queue: NotificationQueue) -> None:
    record_id = queue.schedule(Order(1), delay=FAR, search_key1=1, search_key2=2)
    date = datetime(2040, 5, 6, 7, 8, 9, 10, tzinfo=UTC)

    entry = queue.update(record_id, event=Order(2), search_key1=3, search_key2=None, at=date)

    assert [entry] == queue.find()
    assert (entry.record_id, entry.event_json) == (record_id, '{"number":2}')
    assert (entry.search_key1, entry.search_key2, entry.effective_date) == (3, None, date)


def test_an_update_leaves_alone_what_it_is_not_given(queue: NotificationQueue) -> None:
    record_id = queue.schedule(
        Order(1), delay=FAR, search_key1=1, search_key2=2, user_token="token"
    )
    [before] = queue.find()

    assert queue.update(record_id) == before
    after = queue.update(record_id, search_key2=5)

    assert (after.event_json, after.search_key1, after.search_key2) == ('{"number":1}', 1, 5)
    assert (after.effective_date, after.user_token) == (before.effective_date, "token")


def test_an_earlier_date_fires_at_the_earlier_date(service: NotificationService) -> None:
    punctual = Punctual()
    queue = service.create_queue("billing", "dunning", punctual, event_types=[Order])
    service.start()
    record_id = queue.schedule(Order(1), delay=FAR)

    queue.update(record_id, at=datetime.now(UTC) + timedelta(seconds=0.2))

    punctual.wait()
    assert 0 <= punctual.late[0] < LATE_SECONDS


def test_a_later_date_is_waited_for(service: NotificationService) -> None:
    punctual = Punctual()
    queue = service.create_queue("billing", "dunning", punctual, event_types=[Order])
    record_id = queue.schedule(Order(1), delay=0)
    date = datetime.now(UTC) + timedelta(seconds=0.5)
    queue.update(record_id, at=date)

    service.start()

    punctual.wait()
    assert datetime.now(UTC) >= date
    assert punctual.calls == 1


def test_retries_of_what_was_moved_count_from_the_new_date(make_service: MakeService) -> None:
    clock, fails = ManualClock(), Recorder(failures=99)
    service = make_service(clock=clock, retry=ScheduledRetries((0, 60)))
    queue = service.create_queue("billing", "dunning", fails, event_types=[Order])
    record_id = queue.schedule(Order(1), delay=0, priority="high")
    with pytest.raises(AssertionError, match="is AVAILABLE"):
        consume_one(service)
    date = clock.now() + timedelta(hours=1)

    assert queue.update(record_id, at=date).effective_date == date
    clock.advance_to(date)
    with pytest.raises(AssertionError, match="is AVAILABLE"):
        consume_one(service)

    assert fails.calls == 2
    assert queue.find()[0].effective_date == date + timedelta(seconds=60)


def test_a_delay_moves_a_notification_as_its_date_does(make_service: MakeService) -> None:
    clock = ManualClock()
    queue = make_service(clock=clock).create_queue("billing", "dunning", Recorder())
    record_id = queue.schedule({}, delay=0)
    date = clock.now() + timedelta(minutes=1)
    for delay in (60, timedelta(minutes=1)):
        assert queue.update(record_id, delay=delay).effective_date == date
    for refused in ({"delay": -1}, {"delay": 1, "at": clock.now()}):
        options: Any = refused
        with pytest.raises(InvalidPostError, match="Nothing was written"):
            queue.update(record_id, **options)
    assert queue.find()[0].effective_date == date


def test_a_date_moved_to_now_in_the_callers_transaction_fires_at_its_commit(
    service: NotificationService, engine: Engine
) -> None:
    recorder = Recorder()
    queue = service.create_queue("billing", "dunning", recorder, event_types=[Order])
    service.start()
    record_id = queue.schedule(Order(1), delay=FAR)
    with engine.begin() as connection:
        queue.update(record_id, at=datetime.now(UTC), connection=connection)
        assert recorder.calls == 0
    committed = time.monotonic()

    recorder.wait()

    assert time.monotonic() - committed < LATE_SECONDS


def test_an_update_in_the_callers_transaction_is_undone_by_its_rollback(
    queue: NotificationQueue, engine: Engine
) -> None:
    record_id = queue.schedule(Order(1), delay=FAR)
    before = queue.find()
    with engine.connect() as connection:
        queue.update(record_id, event=Order(2), search_key1=9, connection=connection)
        assert [entry.search_key1 for entry in queue.find(connection=connection)] == [9]
        connection.rollback()
    assert queue.find() == before

    with engine.begin() as connection:
        queue.update(record_id, event=Order(3), connection=connection)
    assert orders(queue.find()) == [3]


Change = Callable[[NotificationQueue, int], object]
CHANGES = pytest.mark.parametrize(
    "change",
    [lambda queue, record_id: queue.update(record_id, event=Order(9)), NotificationQueue.remove],
    ids=["update", "remove"],
)


@CHANGES
def test_a_missing_id_is_a_clear_error(queue: NotificationQueue, change: Change) -> None:
    with pytest.raises(EntryNotFoundError, match="there is no entry 4711") as caught:
        change(queue, 4711)
    assert (caught.value.record_id, caught.value.queue_name) == (4711, "billing:dunning")
    assert "Nothing was changed" in str(caught.value)


@CHANGES
def test_what_runs_or_has_ended_cannot_be_changed(
    service: NotificationService, change: Change
) -> None:
    recorder = Recorder(hold=True)
    queue = service.create_queue("billing", "dunning", recorder, event_types=[Order])
    service.start()
    record_id = queue.schedule(Order(1), delay=0)
    recorder.wait()

    with pytest.raises(EntryNotChangeableError, match="IN_PROCESSING") as caught:
        change(queue, record_id)
    assert caught.value.state == State.IN_PROCESSING
    recorder.release()
    ended(queue)
    with pytest.raises(EntryNotChangeableError, match="PROCESSED") as caught:
        change(queue, record_id)
    assert caught.value.state == State.PROCESSED


@CHANGES
def test_a_queue_changes_nothing_of_another_queue_also_in_the_callers_transaction(
    service: NotificationService, queue: NotificationQueue, engine: Engine, change: Change
) -> None:
    other = service.create_queue("billing", "other", Recorder(), event_types=[Order])
    record_id = other.schedule(Order(1), delay=FAR)

    with pytest.raises(EntryNotFoundError):
        change(queue, record_id)
    with engine.begin() as connection, pytest.raises(EntryNotFoundError):
        queue.update(record_id, event=Order(2), connection=connection)

    assert orders(other.find()) == [1]


# -- removed -------------------------------------------------------------------------------------


def test_removed_by_id_it_is_in_history_as_removed_and_never_fires(
    service: NotificationService,
) -> None:
    recorder = Recorder()
    queue = service.create_queue("billing", "dunning", recorder, event_types=[Order])
    removed = queue.schedule(Order(1), delay=0)
    queue.schedule(Order(2), delay=0.1)

    assert queue.remove(removed) == 1
    service.start()

    assert recorder.wait() == [Order(2)]
    past = ended(queue, 2)
    assert states(past) == [State.REMOVED, State.PROCESSED]
    assert (past[0].record_id, past[0].started_date, past[0].event_json) == (
        removed,
        None,
        '{"number":1}',
    )


def test_removed_by_keys_go_all_that_match_and_no_other(
    service: NotificationService, queue: NotificationQueue
) -> None:
    other = service.create_queue("billing", "other", Recorder(), event_types=[Order])
    for number, (key1, key2) in enumerate([(1, 1), (1, 1), (1, 2), (None, 1)]):
        queue.schedule(Order(number), delay=FAR, search_key1=key1, search_key2=key2)
        other.schedule(Order(number), delay=FAR, search_key1=key1, search_key2=key2)

    assert queue.remove(search_key1=1, search_key2=1) == 2
    assert orders(queue.find()) == [2, 3]
    assert queue.remove(search_key1=KEYLESS, search_key2=1) == 1
    assert queue.remove(search_key2=9) == 0
    assert queue.remove(search_key1=1) == 1

    assert queue.find() == []
    assert orders(queue.history(states=[State.REMOVED])) == [0, 1, 2, 3]
    assert len(other.find()) == 4


@pytest.mark.parametrize("key", ["search_key1", "search_key2"])
def test_a_removal_by_none_as_a_key_is_refused_and_removes_nothing(
    queue: NotificationQueue, key: str
) -> None:
    queue.schedule(Order(1), delay=FAR)
    wanted: dict[str, Any] = {key: None}

    with pytest.raises(InvalidPostError, match=f"{key}=KEYLESS"):
        queue.remove(**wanted)

    assert len(queue.find()) == 1


def test_a_removal_in_the_callers_transaction_is_undone_by_its_rollback(
    queue: NotificationQueue, engine: Engine
) -> None:
    ids = [queue.schedule(Order(number), delay=FAR, search_key2=number) for number in range(3)]
    with engine.connect() as connection:
        assert queue.remove(ids[0], connection=connection) == 1
        assert queue.remove(search_key2=1, connection=connection) == 1
        connection.rollback()
    assert len(queue.find()) == 3
    assert queue.history() == []

    with engine.begin() as connection:
        queue.remove(ids[0], connection=connection)
    assert orders(queue.find()) == [1, 2]


@pytest.mark.parametrize("by", [{}, {"record_id": 1, "search_key1": 1}])
def test_a_removal_names_an_id_or_keys(queue: NotificationQueue, by: dict[str, int]) -> None:
    with pytest.raises(InvalidPostError, match="takes a record id, or search keys"):
        queue.remove(**by)  # type: ignore[arg-type]
