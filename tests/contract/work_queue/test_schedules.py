"""Schedules of tasks, as they are declared, told, changed, stopped and refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, update

from queue_core.errors import InvalidRequestError, PayloadTooLargeError
from queue_core.model.missed_policy import MissedPolicy
from queue_core.runtime.manual_clock import ManualClock
from sql.tables import work_schedules
from tests.contract.harness import BOUND_SECONDS
from tests.contract.work_queue.claiming import claimed
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.finished import MINUTE, NIGHT, date_of, finish
from tests.contract.work_queue.limited import HOUR
from work_queue.work_queue import WorkQueue


@pytest.mark.served_everywhere
def test_a_schedule_is_told_as_it_was_declared(work: WorkQueue, clock: ManualClock) -> None:
    assert work.recurring() == []
    night = work.recur("ü" * 512, "ü" * 64, cron=NIGHT, timezone="Europe/Berlin")
    assert (night.queue, night.name, night.cron, night.every) == ("ü" * 512, "ü" * 64, NIGHT, None)
    assert night.next_due == datetime(2026, 1, 1, 2, tzinfo=UTC)
    assert night.told == "0 3 * * * (Europe/Berlin)"
    beat = work.recur("a", "beat", every=timedelta(minutes=1), missed=MissedPolicy.SKIP)
    assert (beat.cron, beat.every, beat.missed, beat.timezone) == (
        None,
        MINUTE,
        MissedPolicy.SKIP,
        "UTC",
    )
    assert (beat.next_due, beat.last_due, beat.last_task_id) == (clock.now() + MINUTE, None, None)
    assert beat.told == "every 60 s"
    assert work.recurring() == [beat, night]
    assert work.recurring("a", "b") == [beat]
    clock.advance(seconds=60)
    task = claimed(work)
    [told] = work.recurring("a")
    assert (told.last_due, told.last_task_id) == (beat.next_due, task.id)
    assert told.next_due == clock.now() + MINUTE


@pytest.mark.served_everywhere
def test_the_same_rule_again_changes_nothing_but_the_value(
    work: WorkQueue, clock: ManualClock
) -> None:
    made = work.recur("a", "beat", "old", every=60)
    clock.advance(seconds=30)
    assert work.recur("a", "beat", "new", every=timedelta(minutes=1)) == made
    clock.advance(seconds=30)
    assert finish(work) == ["new"]


@pytest.mark.served_everywhere
def test_the_same_dates_in_other_words_change_nothing(work: WorkQueue, clock: ManualClock) -> None:
    made = work.recur("a", "night", cron="@daily")
    clock.advance(seconds=30 * HOUR)
    said = work.recur("a", "night", cron=" 00 0 * *  *")
    assert (said.next_due, said.cron) == (made.next_due, "00 0 * *  *")
    assert date_of(claimed(work)) == made.next_due


def test_another_rule_starts_anew(work: WorkQueue, clock: ManualClock) -> None:
    work.recur("a", "beat", "old", every=60)
    clock.advance(seconds=60)
    assert finish(work) == ["old"]
    clock.advance(seconds=90)
    changed = work.recur("a", "beat", "new", every=600)
    assert changed.next_due == clock.now() + timedelta(minutes=10)
    assert (changed.last_due, changed.last_task_id) == (None, None)
    assert work.try_claim("a") is None
    clock.advance(seconds=600)
    assert finish(work) == ["new"]


@pytest.mark.served_everywhere
def test_another_policy_leaves_the_dates_that_were_missed(
    work: WorkQueue, clock: ManualClock
) -> None:
    made = work.recur("a", "beat", every=60)
    clock.advance(seconds=200)
    changed = work.recur("a", "beat", every=60, missed=MissedPolicy.FIRE_ALL)
    assert (changed.missed, changed.next_due) == (MissedPolicy.FIRE_ALL, made.next_due)
    assert len(finish(work)) == 3


def test_another_rule_works_after_a_clock_was_far_ahead(
    make_work: MakeWork, clock: ManualClock
) -> None:
    work = make_work(clock=clock)
    work.recur("a", "beat", every=60)
    claimed(make_work(clock=ManualClock(clock.now() + timedelta(days=365))))
    work.recur("a", "beat", every=300)
    clock.advance(seconds=300)
    assert claimed(work).id == work.recurring()[0].last_task_id


def test_two_queues_may_name_their_schedules_alike(work: WorkQueue, clock: ManualClock) -> None:
    for queue in "ab":
        work.recur(queue, "beat", queue, every=60)
    clock.advance(seconds=60)
    assert (finish(work, "a"), finish(work, "b")) == (["a"], ["b"])
    assert work.stop_recurring("a", "beat")
    assert [one.queue for one in work.recurring()] == ["b"]


@pytest.mark.served_everywhere
def test_a_schedule_that_was_stopped_inserts_nothing_more(
    work: WorkQueue, clock: ManualClock
) -> None:
    work.recur("a", "beat", every=60)
    clock.advance(seconds=60)
    task = claimed(work)
    assert work.stop_recurring("a", "beat")
    assert not work.stop_recurring("a", "beat")
    clock.advance(seconds=600)
    assert work.try_claim("a") is not None  # its lease has ended
    assert [one.id for one in work.tasks("a")] == [task.id]
    assert work.recurring() == []


@pytest.mark.database_only
def test_many_that_declare_a_schedule_at_once_make_one(make_work: MakeWork) -> None:
    works = [make_work() for _ in range(2)]
    with ThreadPoolExecutor(8) as pool:
        made = [
            pool.submit(works[number % 2].recur, "a", "night", cron=NIGHT) for number in range(8)
        ]
        assert len({one.result(BOUND_SECONDS).next_due for one in made}) == 1
    assert len(works[0].recurring()) == 1


@pytest.mark.database_only
def test_a_rule_of_another_version_keeps_nobody_from_claims(
    work: WorkQueue, clock: ManualClock, engine: Engine
) -> None:
    work.recur("a", "beat", "beat", every=60)
    work.recur("a", "moon", every=60)
    with engine.begin() as connection:
        moon = update(work_schedules).where(work_schedules.c.name == "moon")
        connection.execute(moon.values(rule='{"kind":"moon"}'))
    work.insert("a", "work")
    clock.advance(seconds=60)
    assert finish(work) == ["work", "beat"]
    clock.advance(seconds=60)
    assert finish(work) == ["beat"]
    assert work.claim_many("a", "b", limit=2, timeout_seconds=0) == []
    work.insert("a", "work")
    assert work.try_claim("b", "a") is not None
    assert [one.name for one in work.recurring()] == ["beat"]
    work.recur("a", "moon", "again", every=60)
    clock.advance(seconds=600)
    assert "again" in finish(work)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cron": NIGHT, "every": 60},
        {"cron": "no"},
        {"cron": "0 0 30 2 *"},
        {"cron": 7},
        {"every": 0.001},
        {"every": "60"},
        {"every": True},
        {"cron": NIGHT, "timezone": "Nowhere"},
        {"cron": NIGHT, "timezone": None},
        {"every": 60, "missed": "FIRE"},
    ],
    ids=str,
)
def test_a_rule_that_cannot_work_is_refused(work: WorkQueue, options: Any) -> None:
    with pytest.raises(InvalidRequestError, match="Nothing was scheduled"):
        work.recur("a", "beat", **options)
    assert work.recurring() == []


@pytest.mark.parametrize("name", ["", "x" * 65, "\0", "\ud800", None])
def test_a_name_that_cannot_be_stored_is_refused(work: WorkQueue, name: Any) -> None:
    with pytest.raises(InvalidRequestError, match="Nothing was written"):
        work.recur("a", name, every=60)
    with pytest.raises(InvalidRequestError):
        work.stop_recurring("a", name)
    for call in (work.recurring, lambda queue: work.recur(queue, "beat", every=60)):
        with pytest.raises(InvalidRequestError):
            call("")


def test_a_value_that_is_too_long_is_refused(make_work: MakeWork) -> None:
    work = make_work(max_value_bytes=10)
    with pytest.raises(PayloadTooLargeError):
        work.recur("a", "beat", "x" * 11, every=60)
    assert work.recurring() == []
