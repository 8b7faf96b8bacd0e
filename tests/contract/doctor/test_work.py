"""What `stickybus doctor` finds in the work queue's tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import URL, Engine, delete, insert, select, text, update

from sql.tables import work_doc_sets, work_schedules, work_tasks
from stickybus import DocClaim, Insert, InsertDoc, WorkQueue
from tests.contract.doctor.answers import Doctor, Told


@pytest.fixture
def work(database_url: URL) -> Iterator[WorkQueue]:
    with WorkQueue(database_url) as work:
        work.modify(*(Insert(queue="it's", id=f"{number}") for number in range(5)))
        work.modify(Insert(queue="later", delay=60))
        work.modify(InsertDoc(namespace="n", key="k", content=1))
        yield work


def test_a_work_queue_in_use_is_in_order(doctor: Doctor, work: WorkQueue) -> None:
    task = work.claim("it's")
    work.modify(task.delete(), Insert(queue="sent"))
    work.modify(*(one.delete() for one in work.tasks("later")), claimant=work.claimant)

    assert doctor() == Told(0, [])


def test_a_queue_whose_tasks_were_deleted_by_hand_is_found_and_cured(
    doctor: Doctor, work: WorkQueue, engine: Engine
) -> None:
    with engine.begin() as connection:
        connection.execute(delete(work_tasks).where(work_tasks.c.task_id.in_(["1", "2"])))

    told = doctor()

    assert told.code == 0
    found = told.one("miscounted-queues")
    assert "has 3 tasks, but its counts say 5" in found["what"]
    with engine.begin() as connection:
        connection.execute(text(found["cure"]))
    assert doctor() == Told(0, [])
    assert work.queues()["it's"] == 3


def test_a_queue_that_was_filled_by_hand_is_found_and_cured(
    doctor: Doctor, work: WorkQueue, engine: Engine
) -> None:
    with engine.begin() as connection:
        row = connection.execute(select(work_tasks).where(work_tasks.c.task_id == "1")).one()
        copy = row._asdict() | {"task_id": "copy", "queue": "by hand"}
        connection.execute(insert(work_tasks).values(copy))

    found = doctor().one("miscounted-queues")

    assert "'by hand' has tasks, but no count of them" in found["what"]
    with engine.begin() as connection:
        connection.execute(text(found["cure"]))
    assert doctor() == Told(0, [])
    assert work.queues()["by hand"] == 1


def test_docs_that_have_lost_their_set_are_found_and_cured(
    doctor: Doctor, work: WorkQueue, engine: Engine
) -> None:
    with engine.begin() as connection:
        connection.execute(delete(work_doc_sets))
    assert work.docs("n") == []

    told = doctor()

    assert told.code == 1
    assert "docs at 'k' in 'n' have no set" in told.one("docs-without-set")["what"]
    work.claim_docs(DocClaim("n", "k"))
    assert doctor() == Told(0, [])
    assert [doc.content for doc in work.docs("n")] == [1]


def test_a_schedule_of_tasks_that_no_claim_has_fired_is_found(
    doctor: Doctor, work: WorkQueue, engine: Engine
) -> None:
    for name in ("late", "busy", "coming"):
        work.recur("reports", name, every=3600)
    with engine.begin() as connection:
        for name, minutes in (("late", 90), ("busy", 9)):
            due = datetime.now(UTC) - timedelta(minutes=minutes)
            named = update(work_schedules).where(work_schedules.c.name == name)
            connection.execute(named.values(next_due=due))

    told = doctor()

    assert told.code == 1
    found = told.one("overdue-schedule")
    assert found["subject"] == "late"
    assert "the schedule 'late' of the work queue's 'reports' was due 1.5 h ago" in found["what"]
    work.try_claim("reports")  # which moves it on
    assert doctor() == Told(0, [])
