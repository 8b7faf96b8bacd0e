"""Dates that passed unseen, clocks that jump, and time zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, update

from queue_core.model.missed_policy import MissedPolicy
from queue_core.runtime.manual_clock import ManualClock
from sql.tables import work_schedules
from tests.contract.work_queue.claiming import claimed
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.finished import MINUTE, NIGHT, date_of, finished
from tests.contract.work_queue.limited import HOUR
from work_queue.storage import firings
from work_queue.work_queue import WorkQueue


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        (MissedPolicy.FIRE_ONCE, ["03 Jan 03"]),
        (MissedPolicy.FIRE_ALL, ["01 Jan 03", "02 Jan 03", "03 Jan 03"]),
        (MissedPolicy.SKIP, []),
    ],
)
@pytest.mark.served_everywhere
def test_dates_that_passed_while_nobody_claimed_follow_the_policy(
    work: WorkQueue, clock: ManualClock, missed: MissedPolicy, expected: list[str]
) -> None:
    work.recur("a", "night", cron=NIGHT, missed=missed)
    clock.advance_to(datetime(2026, 1, 3, 12, tzinfo=UTC))
    assert [date_of(task).strftime("%d %b %H") for task in finished(work)] == expected
    clock.advance_to(datetime(2026, 1, 4, 3, tzinfo=UTC))
    assert date_of(claimed(work)) == clock.now()
    assert work.try_claim("a") is None


@pytest.mark.database_only
def test_a_claim_that_makes_up_for_many_large_values_inserts_some_of_them(
    work: WorkQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firings, "FIRED_BYTES", 20)
    work.recur("a", "beat", "ten bytes", every=60, missed=MissedPolicy.FIRE_ALL)
    clock.advance(seconds=5 * 60)
    claimed(work)
    assert work.queues() == {"a": 1}
    found = [date_of(task) for task in finished(work)]
    assert found == [clock.now() - number * MINUTE for number in reversed(range(4))]


def test_a_clock_that_went_back_repeats_no_date(make_work: MakeWork, clock: ManualClock) -> None:
    ahead = ManualClock(clock.now() + timedelta(days=1))
    work, early = make_work(clock=clock), make_work(clock=ahead)
    work.recur("a", "beat", every=timedelta(hours=7))
    task = claimed(early)
    early.modify(task.delete())
    assert work.try_claim("a") is None
    clock.advance(seconds=24 * HOUR)
    assert work.try_claim("a") is None
    clock.advance(seconds=4 * HOUR)
    assert date_of(claimed(work)) == date_of(task) + timedelta(hours=7)


@pytest.mark.database_only
def test_a_row_that_was_set_back_inserts_no_task_that_is_there(
    work: WorkQueue, clock: ManualClock, engine: Engine
) -> None:
    made = work.recur("a", "beat", every=60)
    clock.advance(seconds=60)
    claimed(work)
    before = {"last_due": None, "next_due": made.next_due, "last_task_id": None}
    with engine.begin() as connection:
        connection.execute(update(work_schedules).values(**before))
    assert work.try_claim("a") is None
    assert work.queues() == {"a": 1}


def test_a_cron_line_is_read_in_its_time_zone_over_a_change_of_offset(
    make_work: MakeWork,
) -> None:
    clock = ManualClock(datetime(2026, 3, 27, 12, tzinfo=UTC))
    work = make_work(clock=clock)
    work.recur("a", "night", cron="30 2 * * *", timezone="Europe/Berlin")
    found = list[datetime]()
    for _ in range(4 * 24):
        clock.advance(seconds=HOUR)
        found += map(date_of, finished(work))
    hours = [(date.day, date.hour) for date in found]
    assert hours == [
        (28, 1),
        (29, 1),
        (30, 0),
        (31, 0),
    ]  # on the 29th at 03:30, as 02:30 is missing
