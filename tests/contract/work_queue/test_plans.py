"""Every statement of the work queue reads by index, however many tasks and docs there are."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection

from queue_core.runtime.manual_clock import ManualClock
from sql.doctor.base import Step
from sql.registry import doctor_of
from sql.statements.work.counts import Count, Names
from sql.statements.work.tasks import FailedTasks
from tests.contract.plans.caught import catching
from tests.contract.work_queue.backends import backend_of
from tests.contract.work_queue.docs import new
from work_queue.modification import Insert
from work_queue.storage.database_backend import DatabaseBackend
from work_queue.storage.moment import minute_of
from work_queue.work_queue import WorkQueue

ROWS = 3_000
TABLES = (
    *("work_tasks", "work_task_history", "work_limits", "work_schedules"),
    *("work_docs", "work_doc_sets"),
)
"""Those of counts are short, and are read whole where all queues are asked for."""


@pytest.mark.database_only
def test_every_statement_reads_by_index(work: WorkQueue, clock: ManualClock) -> None:
    work.modify(*(Insert(queue=f"q{number % 3}", id=f"{number}") for number in range(ROWS)))
    work.modify(*(Insert(queue="later", delay=60 * number) for number in range(ROWS)))
    work.modify(
        *(
            new(key=f"k{number % 100}", secondary=f"{number}", id=f"{number}")
            for number in range(ROWS)
        )
    )
    for queue in ("q0", "kept"):
        work.keep_history(queue)
    ended = work.modify(*(Insert(queue="kept") for _ in range(ROWS))).inserted
    work.modify(*(task.delete() for task in ended))
    work.claim_many("q0", limit=50)
    for number in range(100):
        work.limit(f"l{number}", concurrency=1)
        work.recur(f"s{number}", "hourly", every=3600)
    backend = backend_of(work)
    assert isinstance(backend, DatabaseBackend)
    database = backend.database
    doctor, faults = doctor_of(database.dialect.name), list[str]()
    with database.engine.connect() as connection:
        with catching(connection) as caught:
            run_all(backend, connection, clock)
        read = [one for one in caught if not one.text.startswith("INSERT") or "SELECT" in one.text]
        for statement in read:
            tables = [table for table in TABLES if table in statement.text]
            found = statement.faults(connection, doctor, tables)
            faults += [f"{one.step}: {statement.text}" for one in found if one.step is Step.SCAN]
        connection.rollback()
    assert len(read) >= 45
    assert not faults, "\n\n".join(faults)


def run_history(backend: DatabaseBackend, connection: Connection, now: datetime) -> None:
    """All that is sent about history."""
    history, before = backend.statements.history, now + timedelta(days=1)
    history.add(connection, ["1", "4"], now=now, by="me")
    everything: dict[str, Any] = {"since": None, "before": None, "limit": 9, "values": True}
    assert len(history.finished(connection, queue="kept", ids=None, **everything)) == 9
    between = everything | {"since": now, "before": before}
    assert history.finished(connection, queue="kept", ids=None, **between)
    assert history.finished(connection, queue=None, ids=["1", "4"], **between)
    history.keep(connection, "q2", now)
    history.end(connection, "q2")
    assert history.delete_oldest(connection, "kept", before=before, limit=9) == 9


def run_limits(backend: DatabaseBackend, connection: Connection, now: datetime) -> None:
    """All that is sent about limits."""
    tasks, limits = backend.statements.tasks, backend.statements.limits
    assert limits.among(connection, ["l1", "l2", "q0"]) == {"l1", "l2"}
    assert limits.terms(connection, "l1") is not None
    limits.arrived(connection, "l1", now)
    limits.put(connection, "l2", {"concurrency": 2})
    assert limits.remove(connection, "l3")
    assert tasks.leases(connection, "q0", now)[0] == 50


def run_schedules(backend: DatabaseBackend, connection: Connection, now: datetime) -> None:
    """All that is sent about recurring schedules."""
    schedules = backend.statements.schedules
    assert schedules.find(connection, "s1", "hourly") is not None
    assert [name for name, _ in schedules.dates(connection, "s2")] == ["hourly"]
    assert len(schedules.due(connection, "s2", ["hourly"], now + timedelta(days=1))) == 1
    assert len(schedules.of(connection, ["s3", "s4"])) == 2
    schedules.change(connection, "s5", "hourly", {"last_due": now})
    assert schedules.remove(connection, "s6", "hourly")


def run_all(backend: DatabaseBackend, connection: Connection, clock: ManualClock) -> None:
    """All that is sent to the database."""
    tasks, docs = backend.statements.tasks, backend.statements.docs
    counts, now = backend.statements.counts, clock.now()
    claim = {
        "of_queue": "q1",
        "unless_limited": "q1",
        "unless_due": "q1",
        "limit": 2,
        "now": now,
        "until": now + timedelta(seconds=5),
        "by": "me",
    }
    taken = tasks.claim(connection, claim)
    assert len(taken) == 2
    coming = tasks.coming(connection, ["q0", "q1", "later", "s7", "no"])
    assert [one.arrival is None for one in coming] == [False, False, False, True, True]
    assert [one.due is None for one in coming] == [True, True, True, False, True]
    assert tasks.coming(connection, ["q0"]) == coming[:1]
    tasks.give_back(connection, [(row[0], row[2]) for row in taken], now)
    tasks.present(connection, ["1", "2"])
    tasks.lock(connection, ["1", "2"])
    tasks.lock(connection, ["3"], shared=True)
    tasks.change(connection, [{"of_task": "1", "version": 7}])
    tasks.delete(connection, ["2"])
    if tasks.ends_at_once():
        named = {
            "of_task": "5",
            "of_version": 0,
            "of_queue": "",
            "now": now,
            "by": "me",
            "finisher": "me",
        }
        assert len(tasks.end(connection, named)) == 1
    tasks.by_ids(connection, ["1", "4"], values=True)
    for seen_by in (None, "me"):
        tasks.of_queue(connection, "q1", seen_by=seen_by, now=now, limit=9, values=True)
    page: Any = {"seen_by": None, "now": now, "limit": 9, "values": True}
    tasks.of_queue(connection, "q1", **page, after=(now, "1"))
    for failed in (FailedTasks(), FailedTasks("q0", "text")):
        tasks.of_queue(connection, "q1", seen_by=None, now=now, failed=failed, limit=9, values=True)
    assert tasks.met(connection, ["1", "4"])
    run_history(backend, connection, now)
    run_limits(backend, connection, now)
    run_schedules(backend, connection, now)
    assert docs.sets_present(connection, [("n", "k1")])
    assert docs.lock_sets(connection, [("n", "k1"), ("n", "k2")])
    docs.lock_sets(connection, [("n", "k3")], shared=True)
    row = {"of_namespace": "n", "of_key": "k1"}
    docs.change_sets(
        connection, [{**row, "new_version": 2, "new_arrival_date": now, "new_claimant": ""}]
    )
    assert docs.present(connection, [("n", "1")])
    assert docs.lock(connection, [("n", "1"), ("n", "2")])
    assert docs.at_places(connection, "n", "k1", ["1", "101"])
    content = {"new_modified_date": now, "new_content_json": "1", "new_content_bytes": None}
    docs.change(connection, [{"of_namespace": "n", "of_id": "1", **content}])
    docs.delete(connection, [("n", "2")])
    assert docs.by_ids(connection, "n", ["1", "3"], contents=True)
    assert docs.by_keys(connection, "n", key="k1")
    assert docs.by_keys(connection, "n", first="k1", end="k2", limit=9)
    counts.add(connection, counts.queues, [Count("q1", 1)])
    assert counts.fold(connection, counts.queues, now=now, limit=100)
    counts.has_more(connection, counts.queues, than=2_000)
    for names in (Names(), Names([("q", "r")], ["later"], 9)):
        counts.totals(connection, counts.queues, names)
        counts.queue_stats(connection, names, now=now, minute=minute_of(now))
    counts.compared(connection, up_to=1_000, limit=200)
    counts.uncounted(connection, among=100)
    docs.without_sets(connection, among=100)
    counts.namespace_stats(connection, Names(names=["n"]), now=now)
