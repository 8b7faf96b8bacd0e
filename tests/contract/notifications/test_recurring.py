"""Recurring schedules: one firing per due time in the whole cluster, whatever nodes come and go."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from notifications.recurring_schedules import RecurringSchedules
from queue_core.cluster.node import Node
from queue_core.runtime.manual_clock import ManualClock
from queue_core.storage.put_off_schedules import FIRST_DELAY_SECONDS
from sql import time_limits
from stickybus import Entry, InvalidPostError, MissedPolicy, NotificationQueue, NotificationService
from tests import requirements as needs
from tests.contract.cluster import QuietNode
from tests.contract.conftest import MakeService
from tests.contract.harness import Order, Recorder, eventually, lifecycle_of, node_of, schedules_of
from tests.contract.refused_rows import refusing

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Turned:
    """A notification service whose loops are turned by hand, with its one queue started."""

    def __init__(self, service: NotificationService) -> None:
        self.service = service
        self.queue: NotificationQueue = service.create_queue(
            "billing", "dunning", Recorder(), event_types=[Order]
        ).start()
        lifecycle_of(service).membership.join(QuietNode)

    @property
    def schedules(self) -> RecurringSchedules:
        return schedules_of(self.service)

    @property
    def node(self) -> Node:
        return node_of(self.service)

    def fire(self) -> float:
        """Beat, so that the lease holds, and take one turn."""
        self.node.beat_turn()
        return self.schedules.turn()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def turned(make_service: MakeService, clock: ManualClock) -> Turned:
    return Turned(make_service(clock=clock))


def due_dates(entries: list[Entry]) -> list[datetime]:
    return [entry.effective_date for entry in entries]


def minutes(*numbers: int) -> list[datetime]:
    return [NOON + timedelta(minutes=number) for number in numbers]


def test_a_schedule_fires_at_each_of_its_times(turned: Turned, clock: ManualClock) -> None:
    schedule = turned.queue.recur(
        "report", Order(1), cron="*/10 * * * *", search_key1=1, search_key2=2
    )
    assert schedule.next_due == NOON + timedelta(minutes=10)
    assert turned.fire() == pytest.approx(3)  # nothing yet: the poll interval

    for _ in range(3):
        clock.advance(seconds=600)
        turned.fire()
        turned.fire()

    fired = turned.queue.find()
    assert due_dates(fired) == minutes(10, 20, 30)
    assert {(entry.event_json, entry.search_key1, entry.search_key2) for entry in fired} == {
        ('{"number":1}', 1, 2)
    }


def test_the_loop_waits_for_exactly_the_next_due_time(turned: Turned, clock: ManualClock) -> None:
    turned.queue.recur("report", Order(1), every=2)
    assert turned.fire() == pytest.approx(2)
    clock.advance(seconds=2)
    assert turned.fire() == 0
    assert turned.fire() == pytest.approx(2)


def test_a_started_service_fires_by_itself_and_delivers(make_service: MakeService) -> None:
    recorder, service = Recorder(), make_service(poll_interval_seconds=30)
    queue = service.create_queue("billing", "dunning", recorder, event_types=[Order])
    service.start()

    queue.recur("tick", Order(7), every=0.2)

    assert recorder.wait(3)[:3] == [Order(7)] * 3


def test_three_services_that_race_make_one_firing_for_each_due_time(
    make_service: MakeService, clock: ManualClock
) -> None:
    services = [Turned(make_service(clock=clock)) for _ in range(3)]
    together = threading.Barrier(3)

    def declare(turned: Turned) -> None:
        together.wait(20)
        turned.queue.recur("report", Order(1), every=60)

    def fire(turned: Turned) -> None:
        together.wait(20)
        turned.fire()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(declare, services))
        for _ in range(20):
            clock.advance(seconds=60)
            for turned in services:
                turned.node.beat_turn()
            list(pool.map(fire, services))

    assert due_dates(services[0].queue.find()) == minutes(*range(1, 21))
    assert len(services[0].queue.recurring()) == 1


def test_the_next_node_continues_where_the_last_one_stood(
    make_service: MakeService, clock: ManualClock
) -> None:
    first = Turned(make_service(clock=clock, node_name="a"))
    first.queue.recur("report", Order(1), every=60)
    clock.advance(seconds=60)
    first.fire()
    lifecycle_of(first.service).membership.leave()
    clock.advance(seconds=30)

    second = Turned(make_service(clock=clock, node_name="b"))
    second.queue.recur("report", Order(1), every=60)  # as every node does at its start
    second.fire()
    clock.advance(seconds=30)
    second.fire()

    assert due_dates(second.queue.find()) == minutes(1, 2)


@pytest.mark.parametrize(
    ("policy", "dates"),
    [
        (MissedPolicy.FIRE_ONCE, minutes(50)),
        (MissedPolicy.FIRE_ALL, minutes(10, 20, 30, 40, 50)),
        (MissedPolicy.SKIP, []),
    ],
)
def test_due_times_missed_while_no_node_ran_follow_the_policy(
    turned: Turned, clock: ManualClock, policy: MissedPolicy, dates: list[datetime]
) -> None:
    turned.queue.recur("report", Order(1), cron="*/10 * * * *", missed=policy)
    clock.advance(seconds=55 * 60)

    turned.fire()

    assert due_dates(turned.queue.find()) == dates
    clock.advance(seconds=5 * 60)
    turned.fire()
    assert due_dates(turned.queue.find()) == [*dates, *minutes(60)]
    turned.fire()
    assert len(turned.queue.find()) == len(dates) + 1


def test_a_firing_that_was_handled_does_not_come_again(turned: Turned, clock: ManualClock) -> None:
    turned.queue.recur("report", Order(1), every=60)
    clock.advance(seconds=60)
    turned.fire()
    lifecycle_of(turned.service).run_due()
    assert turned.queue.find() == []

    turned.fire()

    assert turned.queue.find() == []
    assert len(turned.queue.history()) == 1


def test_declaring_the_same_rule_again_leaves_the_schedule_where_it_stands(
    turned: Turned, clock: ManualClock
) -> None:
    declared = turned.queue.recur("report", Order(1), every=60)
    clock.advance(seconds=30)

    assert turned.queue.recur("report", Order(1), every=60) == declared
    turned.queue.recur("report", Order(2), every=60)  # another payload, the same times

    [schedule] = turned.queue.recurring()
    assert schedule.next_due == declared.next_due
    clock.advance(seconds=30)
    turned.fire()
    assert [json.loads(entry.event_json or "") for entry in turned.queue.find()] == [{"number": 2}]


def test_the_same_dates_in_other_words_leave_the_schedule_where_it_stands(
    turned: Turned, clock: ManualClock
) -> None:
    declared = turned.queue.recur("report", Order(1), cron="@hourly")
    clock.advance(seconds=5_000)
    said = turned.queue.recur("report", Order(1), cron="00 * * * *")
    assert said.next_due == declared.next_due


def test_another_policy_leaves_the_dates_that_were_missed(
    turned: Turned, clock: ManualClock
) -> None:
    turned.queue.recur("report", Order(1), every=60)
    clock.advance(seconds=200)
    turned.queue.recur("report", Order(1), every=60, missed=MissedPolicy.FIRE_ALL)
    turned.fire()
    assert len(turned.queue.find()) == 3


def test_another_rule_replaces_the_old_one_from_now_on(turned: Turned, clock: ManualClock) -> None:
    turned.queue.recur("report", Order(1), every=60)
    clock.advance(seconds=30)

    changed = turned.queue.recur("report", Order(1), every=600)

    assert changed.next_due == clock.now() + timedelta(seconds=600)
    clock.advance(seconds=60)
    turned.fire()
    assert turned.queue.find() == []


def test_a_node_that_still_sees_the_old_rule_cannot_fire_after_the_change(
    turned: Turned, clock: ManualClock
) -> None:
    turned.queue.recur("report", Order(1), every=60)
    clock.advance(seconds=60)
    turned.node.beat_turn()
    [seen] = turned.schedules.stored.of([turned.queue.full_name])
    changed = turned.queue.recur("report", Order(2), every=600)

    turned.schedules.fire(seen, clock.now())

    assert turned.queue.find() == []
    assert turned.queue.recurring() == [changed]


def test_a_node_that_still_sees_the_old_payload_and_policy_fires_the_new_ones(
    turned: Turned, clock: ManualClock
) -> None:
    turned.queue.recur("report", Order(1), every=60)
    clock.advance(seconds=120)
    turned.node.beat_turn()
    [seen] = turned.schedules.stored.of([turned.queue.full_name])
    turned.queue.recur("report", Order(2), every=60, missed=MissedPolicy.FIRE_ALL)

    turned.schedules.fire(seen, clock.now())
    turned.fire()

    fired = [json.loads(entry.event_json or "") for entry in turned.queue.find()]
    assert fired == [{"number": 2}, {"number": 2}]


def test_a_schedule_that_was_ended_fires_no_more_and_what_it_fired_stays(
    turned: Turned, clock: ManualClock
) -> None:
    turned.queue.recur("report", Order(1), every=60)
    clock.advance(seconds=60)
    turned.fire()

    assert turned.queue.stop_recurring("report")
    assert not turned.queue.stop_recurring("report")

    clock.advance(seconds=600)
    turned.fire()
    assert due_dates(turned.queue.find()) == minutes(1)
    assert turned.queue.recurring() == []


def test_only_nodes_on_which_the_queue_is_started_fire(turned: Turned, clock: ManualClock) -> None:
    turned.queue.recur("report", Order(1), every=60)
    turned.queue.stop()
    clock.advance(seconds=60)
    turned.fire()
    assert turned.queue.find() == []

    turned.queue.start()
    turned.fire()
    assert due_dates(turned.queue.find()) == minutes(1)


def test_a_node_whose_lease_is_over_fires_nothing(turned: Turned, clock: ManualClock) -> None:
    turned.queue.recur("report", Order(1), every=60)
    clock.advance(seconds=60)

    turned.schedules.turn()

    assert turned.queue.find() == []


def test_the_time_zone_of_a_rule_is_kept_and_its_default_is_utc(turned: Turned) -> None:
    turned.queue.recur("utc", Order(1), cron="0 9 * * *")
    turned.queue.recur("berlin", Order(1), cron="0 9 * * *", timezone="Europe/Berlin")

    berlin, utc = turned.queue.recurring()

    assert (utc.recurrence.timezone, utc.next_due) == ("UTC", datetime(2026, 1, 2, 9, tzinfo=UTC))
    assert (berlin.recurrence.timezone, berlin.next_due) == (
        "Europe/Berlin",
        datetime(2026, 1, 2, 8, tzinfo=UTC),
    )


def test_schedules_of_two_queues_with_one_name_are_two(
    make_service: MakeService, clock: ManualClock
) -> None:
    turned = Turned(make_service(clock=clock))
    other = turned.service.create_queue("billing", "other", Recorder(), event_types=[Order]).start()
    turned.queue.recur("report", Order(1), every=60)
    other.recur("report", Order(2), every=120)
    clock.advance(seconds=120)

    turned.fire()

    assert due_dates(turned.queue.find()) == minutes(2)  # once for both it missed
    assert due_dates(other.find()) == minutes(2)


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"cron": "* * * * *", "every": 5},
        {"cron": "61 * * * *"},
        {"every": 0},
        {"cron": "0 0 30 2 *"},
    ],
    ids=["none", "both", "no such minute", "no pause", "never"],
)
def test_a_rule_that_cannot_work_is_refused_and_nothing_scheduled(
    turned: Turned, rule: dict[str, Any]
) -> None:
    with pytest.raises(InvalidPostError, match="Nothing was scheduled"):
        turned.queue.recur("report", Order(1), **rule)
    assert turned.queue.recurring() == []


def test_a_schedule_declared_on_one_running_service_fires_on_another(
    make_service: MakeService,
) -> None:
    recorder = Recorder()
    one, two = (make_service(poll_interval_seconds=0.1) for _ in range(2))
    declaring = one.create_queue("billing", "dunning", recorder, event_types=[Order])
    two.create_queue("billing", "dunning", recorder, event_types=[Order])
    two.start()

    declaring.recur("tick", Order(1), every=0.3)  # its own service is not started

    recorder.wait(2)
    eventually(lambda: len(declaring.history()) >= 2, "two firings have ended")


def test_a_schedule_whose_notification_is_refused_keeps_no_other_from_firing(
    turned: Turned, clock: ManualClock, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    for number, name in enumerate(("a", "b", "c"), start=1):
        turned.queue.recur(name, Order(number), every=60)
    with refusing(engine, "notifications", "event_json", '{"number":1}'):
        clock.advance(seconds=60)
        assert turned.fire() == 0
        assert len(turned.queue.find()) == 2
        assert turned.fire() == pytest.approx(FIRST_DELAY_SECONDS)
        clock.advance(seconds=FIRST_DELAY_SECONDS)
        assert turned.fire() == pytest.approx(2 * FIRST_DELAY_SECONDS)
        clock.advance(seconds=60 - FIRST_DELAY_SECONDS)
        turned.fire()
        assert len(turned.queue.find()) == 4
    failed = [record for record in caplog.records if "schedule_failed" in record.getMessage()]
    assert len(failed) == 3
    turned.queue.recur("a", Order(1), every=60)
    turned.fire()
    assert due_dates(turned.queue.find()) == minutes(1, 1, 2, 2, 2)


@pytest.mark.slow
@needs.server
def test_a_schedule_that_an_open_transaction_has_changed_keeps_no_other_from_firing(
    make_service: MakeService, clock: ManualClock, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limits, "LOCK_SHARE", 1 / 60)
    turned = Turned(make_service(clock=clock))
    for number, name in enumerate(("a", "b"), start=1):
        turned.queue.recur(name, Order(number), every=60)
    with engine.connect() as connection:
        turned.queue.recur("a", Order(3), every=60, connection=connection)
        clock.advance(seconds=60)
        turned.fire()
        assert [entry.event_json for entry in turned.queue.find()] == ['{"number":2}']
        connection.commit()
    clock.advance(seconds=FIRST_DELAY_SECONDS)
    turned.fire()
    assert sorted(entry.event_json or "" for entry in turned.queue.find()) == [
        '{"number":2}',
        '{"number":3}',
    ]
