"""Recurring schedules whose task the database refuses: claims take the other tasks of the queue."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from queue_core.runtime.manual_clock import ManualClock
from queue_core.storage.put_off_schedules import LONGEST_DELAY_SECONDS
from sql import time_limits
from tests import requirements as needs
from tests.contract.harness import BOUND_SECONDS, statements_of
from tests.contract.refused_rows import refusing
from tests.contract.work_queue.backends import backend_of
from tests.contract.work_queue.claiming import claimed
from tests.contract.work_queue.conftest import MakeWork
from tests.contract.work_queue.finished import finish
from tests.contract.work_queue.limited import HOUR
from tests.contract.work_queue.refused import REFUSED
from work_queue.work_queue import WorkQueue


@pytest.mark.database_only
def test_a_task_that_the_database_refuses_keeps_nobody_from_claims(
    work: WorkQueue, clock: ManualClock, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in (("1", "beat"), ("2", "refused"), ("3", "beat")):
        work.recur("a", name, value, every=60)
    work.insert("a", "work")
    work.insert("b", "work")
    with refusing(engine, *REFUSED):
        clock.advance(seconds=60)
        assert finish(work) == ["work", "beat", "beat"]
        assert {claimed(work, "b").value} == {"work"}
        work.insert("a", "more")
        assert finish(work) == ["more"]
        assert work.claim_many("a", "b", limit=9, timeout_seconds=0) == []
        [told] = [one for one in work.recurring() if one.name == "2"]
        assert (told.last_due, told.next_due) == (None, clock.now())
    clock.advance(seconds=LONGEST_DELAY_SECONDS)
    assert sorted(finish(work)) == ["beat", "beat", "refused"]
    failed = [record for record in caplog.records if "schedule_failed" in record.getMessage()]
    assert len(failed) == 1
    assert "queue_name=a schedule=2" in failed[0].getMessage().replace("'", "")
    assert "refused" not in caplog.text


@pytest.mark.database_only
def test_a_schedule_that_was_refused_is_tried_again_ever_more_rarely(
    work: WorkQueue, clock: ManualClock, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    work.recur("a", "beat", "refused", every=3600)
    clock.advance(seconds=3600)
    with refusing(engine, *REFUSED):
        for _ in range(600):
            clock.advance(seconds=1)
            assert work.try_claim("a") is None
    tries = sum("schedule_failed" in record.getMessage() for record in caplog.records)
    assert 600 / LONGEST_DELAY_SECONDS < tries < 3 * 600 / LONGEST_DELAY_SECONDS
    work.recur("a", "beat", "good", every=3600)
    assert finish(work) == ["good"]


@pytest.mark.database_only
def test_a_claim_that_waits_learns_of_dates_beside_one_that_was_refused(
    make_work: MakeWork, engine: Engine
) -> None:
    work = make_work(poll_seconds=HOUR)
    work.recur("a", "refused", "refused", every=0.1)
    work.recur("a", "beat", "beat", every=1)
    with refusing(engine, *REFUSED):
        assert work.claim("a", timeout_seconds=BOUND_SECONDS).value == "beat"
    assert work.claim("a", timeout_seconds=BOUND_SECONDS).value in {"refused", "beat"}


@pytest.mark.slow
@pytest.mark.database_only
@needs.server
def test_a_schedule_that_somebody_has_locked_keeps_nobody_from_claims(
    make_work: MakeWork,
    clock: ManualClock,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(time_limits, "LOCK_SHARE", 1 / 60)
    work = make_work(clock=clock)
    for name in "12":
        work.recur("a", name, name, every=60)
    work.insert("a", "work")
    clock.advance(seconds=60)
    with engine.connect() as connection:
        assert backend_of(work).statements.schedules.find(connection, "a", "1") is not None
        assert finish(work) == ["work", "2"]
        assert sum("schedule_failed" in record.getMessage() for record in caplog.records) == 1
        clock.advance(seconds=1)
        with statements_of(backend_of(work).database) as statements:
            assert finish(work) == []
        # Each try waits.
        assert sum(text.endswith("FOR UPDATE") for text in statements.texts) == 1
        connection.rollback()
    clock.advance(seconds=2)
    assert finish(work) == ["1"]


@pytest.mark.database_only
@needs.sqlite
def test_a_file_that_is_locked_as_a_whole_is_no_failure_of_its_schedules(
    make_work: MakeWork,
    clock: ManualClock,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(time_limits.TimeLimits, "statement", 1.0)
    work = make_work(clock=clock)
    work.recur("a", "beat", "beat", every=60)
    clock.advance(seconds=60)
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(OperationalError):
            work.claim_many("a", "b", limit=1, timeout_seconds=0)
    assert "schedule_failed" not in caplog.text
    assert finish(work) == ["beat"]
