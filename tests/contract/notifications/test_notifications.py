"""Notifications fire at their time."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine

from stickybus import (
    InvalidPostError,
    Mode,
    NaiveDateTimeError,
    NotificationQueue,
    NotificationService,
    Posting,
)
from tests.contract.conftest import MakeService
from tests.contract.harness import Order, Recorder, ended
from tests.contract.notifications.punctual import LATE_SECONDS, PUNCTUAL_SECONDS, Punctual, orders

TRIES = 10
"""As often a notification may be late because threads were stopped."""


def test_a_notification_fires_within_milliseconds_of_its_time(
    service: NotificationService,
) -> None:
    punctual = Punctual()
    queue = service.create_queue("billing", "dunning", punctual, event_types=[Order])
    service.start()

    queue.schedule(Order(1), delay=0.3)
    queue.schedule(Order(2), at=datetime.now(UTC) + timedelta(seconds=0.6))
    queue.schedule(Order(3), delay=timedelta(seconds=0.1))

    punctual.wait(3)
    assert punctual.numbers() == [1, 2, 3]
    while min(punctual.late) >= PUNCTUAL_SECONDS and punctual.calls < TRIES:
        calls = punctual.calls  # the machine was busy
        queue.schedule(Order(4), delay=0.1)
        punctual.wait(calls + 1)
    assert 0 <= min(punctual.late) < PUNCTUAL_SECONDS, punctual.late
    assert max(punctual.late) < LATE_SECONDS, punctual.late


def test_a_notification_scheduled_in_the_callers_transaction_fires_at_its_time(
    service: NotificationService, engine: Engine
) -> None:
    punctual = Punctual()
    queue = service.create_queue("billing", "dunning", punctual, event_types=[Order])
    service.start()

    with engine.begin() as connection:
        queue.schedule(Order(1), delay=0.3, connection=connection)

    punctual.wait()
    assert 0 <= punctual.late[0] < LATE_SECONDS


def test_a_date_in_the_past_fires_at_once(service: NotificationService) -> None:
    recorder = Recorder()
    queue = service.create_queue("billing", "dunning", recorder, event_types=[Order])
    service.start()
    began = time.monotonic()

    queue.schedule(Order(1), at=datetime(1970, 1, 1, tzinfo=UTC))

    recorder.wait()
    assert time.monotonic() - began < LATE_SECONDS


def test_notifications_that_waited_while_nobody_ran_fire_when_the_service_starts(
    make_service: MakeService,
) -> None:
    make_service().create_queue("billing", "dunning", print, event_types=[Order]).schedule(
        Order(1), delay=0
    )
    recorder, service = Recorder(), make_service(poll_interval_seconds=30)
    service.create_queue("billing", "dunning", recorder, event_types=[Order])

    service.start()

    assert recorder.wait() == [Order(1)]


def test_in_polling_mode_any_node_delivers(make_service: MakeService) -> None:
    recorder = Recorder()
    services = [make_service(mode=Mode.POLLING, poll_interval_seconds=0.1) for _ in range(2)]
    queues = [
        service.create_queue("billing", "dunning", recorder, event_types=[Order])
        for service in services
    ]
    services[1].start()

    queues[0].schedule_many([Posting(event=Order(number)) for number in range(20)])

    recorder.wait(20)
    assert orders(ended(queues[1], 20)) == list(range(20))
    assert recorder.calls == 20


@pytest.mark.parametrize(
    ("when", "error"),
    [
        ({}, InvalidPostError),
        ({"at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1}, InvalidPostError),
        ({"at": datetime(2030, 1, 1)}, NaiveDateTimeError),  # noqa: DTZ001 -- that is the mistake
        ({"delay": timedelta.max}, InvalidPostError),
        ({"delay": "soon"}, InvalidPostError),
    ],
    ids=["neither", "both", "naive", "beyond the calendar", "no number"],
)
def test_a_time_that_is_none_is_refused_and_nothing_written(
    queue: NotificationQueue, when: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error, match="Nothing was written"):
        queue.schedule(Order(1), **when)  # type: ignore[call-overload]  # what a caller without a type checker may pass
    assert queue.find() == []


def test_a_date_far_in_the_future_is_stored_to_the_microsecond(queue: NotificationQueue) -> None:
    date = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)

    queue.schedule(Order(1), at=date)

    assert [entry.effective_date for entry in queue.find()] == [date]
