"""Recurring schedules of queues: each date has one task, whoever claims, dies and comes late."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import URL, Connection, Engine, func, select, update

from queue_core.errors import InvalidRequestError, PayloadTooLargeError
from queue_core.model.missed_policy import MissedPolicy
from queue_core.runtime.manual_clock import ManualClock
from sql.statements.work.claims import Coming
from sql.statements.work.tasks import WorkTasks
from sql.tables import work_queue_counts, work_schedules
from tests.contract.harness import BOUND_SECONDS, eventually
from tests.contract.work_queue.backends import backend_of, waiting
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.test_limits import HOUR, waiting_claim
from tests.contract.work_queue.test_tasks import claimed
from work_queue.storage import firings
from work_queue.storage.folding import ROWS
from work_queue.task import Task
from work_queue.work_queue import WorkQueue

MINUTE = timedelta(minutes=1)
NIGHT = "0 3 * * *"


def finish(work: WorkQueue, queue: str = "a") -> list[Any]:
    """The values of all that can be claimed, which is deleted."""
    return [task.value for task in finished(work, queue)]


def finished(work: WorkQueue, queue: str = "a") -> list[Task]:
    """All that can be claimed, which is deleted."""
    found = list[Task]()
    while (task := work.try_claim(queue)) is not None:
        found.append(task)
        work.modify(task.delete())
    return found


def date_of(task: Task) -> datetime:
    """The date of which the id of a task tells."""
    return datetime.fromisoformat(task.id.partition("@")[2])


# -- what is inserted -----------------------------------------------------------------------------


@pytest.mark.served_everywhere
def test_a_claim_gets_a_task_for_each_date(work: WorkQueue, clock: ManualClock) -> None:
    made = work.recur("a", "beat", {"n": 2**70}, every=60)
    assert work.try_claim("a") is None
    clock.advance(seconds=59)
    assert work.try_claim("a") is None
    clock.advance(seconds=1)
    task = claimed(work)
    assert (task.value, task.claims, task.created) == ({"n": 2**70}, 1, made.next_due)
    work.modify(task.delete())
    assert work.try_claim("a") is None
    clock.advance(seconds=60)
    assert claimed(work).id != task.id
    assert work.queues() == {"a": 1}


def test_a_task_arrives_at_its_date(work: WorkQueue, clock: ManualClock) -> None:
    made = work.recur("a", "beat", every=60)
    clock.advance(seconds=90)
    before = work.insert("a", "later")
    assert work.try_claim("other", "a") is not None
    [told] = work.recurring()
    assert told.last_due == made.next_due
    assert [task.id for task in work.tasks("a")] != [before.id]
    assert claimed(work).id == before.id


def test_a_value_may_be_bytes_or_none(work: WorkQueue, clock: ManualClock) -> None:
    for name, value in (("1", b"\0\xff"), ("2", None), ("3", "text")):
        work.recur("a", name, value, every=60)
    clock.advance(seconds=60)
    assert sorted(map(repr, finish(work))) == ["'text'", "None", r"b'\x00\xff'"]


@pytest.mark.served_everywhere
def test_a_queue_that_is_never_empty_gets_its_task_in_time(
    work: WorkQueue, clock: ManualClock
) -> None:
    work.recur("a", "beat", "beat", every=60)
    for _ in range(3):
        work.insert("a", "work")
    work.modify(claimed(work).delete())
    clock.advance(seconds=61)
    for _ in range(3):
        work.insert("a", "newer")
    # Tasks are claimed by arrival: what has waited since before the date comes first.
    assert finish(work) == ["work", "work", "beat", "newer", "newer", "newer"]


def test_a_claim_of_several_queues_inserts_what_is_due_in_each(
    work: WorkQueue, clock: ManualClock
) -> None:
    work.recur("a", "beat", every=60)
    work.recur("b", "beat", every=60)
    for _ in range(20):
        work.insert("c")
    clock.advance(seconds=60)
    assert work.try_claim("a", "b", "c") is not None
    assert work.queues() == {"a": 1, "b": 1, "c": 20}
    assert len(work.claim_many("a", "b", "c", limit=30, timeout_seconds=0)) > 0


def test_a_limited_queue_gets_its_tasks_too(work: WorkQueue, clock: ManualClock) -> None:
    work.recur("a", "beat", every=60)
    work.limit("a", concurrency=1)
    work.insert("a")
    held = claimed(work)
    clock.advance(seconds=60)
    work.modify(held.delete())
    claimed(work)
    work.insert("a")
    assert work.try_claim("a") is None


@pytest.mark.database_only
def test_tasks_of_schedules_are_counted_in_few_rows(
    work: WorkQueue, clock: ManualClock, engine: Engine
) -> None:
    work.recur("a", "beat", every=60)
    for _ in range(ROWS + 1):
        clock.advance(seconds=60)
        claimed(work, lease_seconds=100 * HOUR)
    with engine.connect() as connection:
        rows = connection.scalar(select(func.count()).select_from(work_queue_counts))
    assert rows is not None
    assert rows < ROWS
    assert work.queues() == {"a": ROWS + 1}


# -- once -----------------------------------------------------------------------------------------


@pytest.mark.database_only
def test_claims_that_race_insert_one_task_for_each_date(
    make_work: MakeWork, clock: ManualClock
) -> None:
    works = [make_work(clock=clock) for _ in range(2)]
    works[0].recur("a", "beat", every=60)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            clock.advance(seconds=60)
            claims = [
                pool.submit(works[number % 2].try_claim, "a", lease_seconds=HOUR)
                for number in range(8)
            ]
            taken = [claim.result(BOUND_SECONDS) for claim in claims]
            assert sum(task is not None for task in taken) == 1
    assert works[1].queues() == {"a": 5}


def test_two_that_wait_get_one_task_of_one_date(make_work: MakeWork) -> None:
    works = [make_work(poll_seconds=HOUR) for _ in range(2)]
    works[0].recur("a", "beat", every=1)
    with ThreadPoolExecutor(2) as pool:
        claims = [pool.submit(work.claim, "a", timeout_seconds=BOUND_SECONDS) for work in works]
        ids = {claim.result(2 * BOUND_SECONDS).id for claim in claims}
    assert len(ids) == 2  # of two dates
    [told] = works[0].recurring()
    assert told.last_task_id in ids


@pytest.mark.database_only
def test_a_claim_takes_a_task_though_another_has_inserted_what_was_due(
    make_work: MakeWork, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = make_work(clock=clock), make_work(clock=clock)
    slow.recur("a", "beat", every=60)
    slow.insert("a", "waits")
    clock.advance(seconds=60)
    coming, taken = WorkTasks.coming, list[Task | None]()

    def late(statements: WorkTasks, connection: Connection, queues: Sequence[str]) -> list[Coming]:
        if not taken:
            taken.append(None)  # first: the other one reads, too
            taken[0] = fast.try_claim("a")
        return coming(statements, connection, queues)

    monkeypatch.setattr(WorkTasks, "coming", late)
    assert slow.try_claim("a") is not None
    assert taken != [None]


@pytest.mark.database_only
def test_a_claim_that_fails_within_leaves_the_date_to_the_next(
    work: WorkQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise RuntimeError("within")

    work.recur("a", "beat", every=60)
    clock.advance(seconds=60)
    schedules = backend_of(work).statements.schedules
    with monkeypatch.context() as patch:
        patch.setattr(schedules, "change", fail)
        with pytest.raises(RuntimeError):
            work.try_claim("a")
    assert work.queues() == {}
    claimed(work)
    assert work.try_claim("a") is None


KILLED = """
import os, sys
from sql.statements.work.schedules import WorkSchedules
from stickybus import WorkQueue

change = WorkSchedules.change
def die(*arguments, **options):
    change(*arguments, **options)
    os._exit(9)
WorkSchedules.change = die
WorkQueue(sys.argv[1]).claim("a")
"""


@pytest.mark.slow
@pytest.mark.database_only
def test_a_process_that_dies_within_leaves_the_date_to_the_next(
    make_work: MakeWork, database_url: URL
) -> None:
    work = make_work()
    made = work.recur("a", "beat", every=0.05)
    url = database_url.render_as_string(hide_password=False)
    process = subprocess.run([sys.executable, "-c", KILLED, url], check=False)
    assert process.returncode == 9
    assert work.queues() == {}
    assert work.recurring() == [made]
    work.claim("a", timeout_seconds=BOUND_SECONDS)
    assert work.recurring() != [made]


# -- time -----------------------------------------------------------------------------------------


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


# -- who waits ------------------------------------------------------------------------------------


@pytest.fixture
def waits(make_work: MakeWork) -> WorkQueue:
    """A work queue by the true time whose claims look at nothing unless they are told."""
    return make_work(claimant="me", poll_seconds=HOUR)


@pytest.mark.served_everywhere
def test_the_next_date_wakes_a_claim_that_waits(waits: WorkQueue) -> None:
    waits.recur("a", "beat", "beat", every=0.5)
    assert waits.claim("a", timeout_seconds=BOUND_SECONDS).value == "beat"
    assert waits.claim("b", "a", timeout_seconds=BOUND_SECONDS).value == "beat"


def test_a_claim_that_waits_learns_of_a_schedule(waits: WorkQueue) -> None:
    with waiting_claim(waits) as claim:
        waits.recur("a", "beat", "beat", every=0.2)
        assert claim.result(BOUND_SECONDS).value == "beat"


def test_several_tasks_that_were_due_wake_several_that_wait(waits: WorkQueue) -> None:
    with ThreadPoolExecutor(3) as pool:
        claims = [pool.submit(waits.claim, "a", timeout_seconds=BOUND_SECONDS) for _ in range(3)]
        eventually(lambda: waiting(waits) == 3)
        for name in "123":
            waits.recur("a", name, every=timedelta(hours=1))
        with backend_of(waits).database.engine.begin() as connection:
            now = datetime.now(UTC) + timedelta(seconds=1)
            connection.execute(update(work_schedules).values(next_due=now, rule=_since(now)))
        waits.recur("a", "wakes", every=timedelta(hours=1))
        assert len({claim.result(BOUND_SECONDS).id for claim in claims}) == 3


def _since(date: datetime) -> str:
    return (
        '{"kind":"interval","expression":"3600","timezone":"UTC","missed":"FIRE_ONCE",'
        f'"start":"{(date - timedelta(hours=1)).isoformat()}"}}'
    )


# -- what is declared -----------------------------------------------------------------------------


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


def test_the_awaitable_twins_do_the_same(work: WorkQueue, clock: ManualClock) -> None:
    async def run() -> None:
        made = await work.recur_async("a", "beat", 7, every=60)
        assert await work.recurring_async() == [made]
        clock.advance(seconds=60)
        task = await work.claim_async("a", timeout_seconds=BOUND_SECONDS)
        assert task.value == 7
        assert await work.stop_recurring_async("a", "beat")

    asyncio.run(run())
