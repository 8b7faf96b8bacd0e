"""Metrics of a work queue and its workers on each database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import URL, create_engine

from queue_core.runtime.manual_clock import ManualClock
from stickybus import (
    DependencyError,
    DocClaim,
    GiveUp,
    ImmediateRetries,
    Insert,
    Job,
    StopWorker,
    Worker,
    WorkQueue,
)
from tests import requirements as needs
from tests.contract.work_queue.conftest import MakeWork

pytestmark = pytest.mark.database_only

Shown = Callable[..., float | None]


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def measured(make_work: MakeWork, registry: CollectorRegistry, clock: ManualClock) -> WorkQueue:
    return make_work(claimant="me", clock=clock, metrics_registry=registry)


@pytest.fixture
def shown(registry: CollectorRegistry) -> Shown:
    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"stickybus_{name}", labels)

    return value


def test_a_scrape_shows_what_each_queue_has(
    measured: WorkQueue, clock: ManualClock, shown: Shown
) -> None:
    measured.modify(*(Insert(queue="a") for _ in range(4)), Insert(queue="a", delay=3600))
    measured.claim_many("a", limit=3)

    assert shown("tasks", queue_name="a", state="available") == 1
    assert shown("tasks", queue_name="a", state="claimed") == 3
    assert shown("tasks", queue_name="a", state="future") == 1
    assert shown("database_up", table="work_tasks") == 1
    clock.advance(seconds=7200)
    assert shown("tasks", queue_name="a", state="available") == 5


def test_work_queues_that_share_a_registry_are_shown_once(
    measured: WorkQueue, make_work: MakeWork, registry: CollectorRegistry, shown: Shown
) -> None:
    second = make_work(metrics_registry=registry)
    measured.insert("a")

    [tasks] = [family for family in registry.collect() if family.name == "stickybus_tasks"]
    assert len(tasks.samples) == 3
    measured.close()
    assert shown("tasks", queue_name="a", state="available") == 1
    second.close()
    assert shown("tasks", queue_name="a", state="available") is None


def test_claims_modifications_and_faults_are_counted(measured: WorkQueue, shown: Shown) -> None:
    tasks = measured.modify(*(Insert(queue="a") for _ in range(3))).inserted
    [held] = measured.claim_many("a", limit=1)
    missing = [measured.insert("b"), measured.insert("b")]
    measured.modify(*(task.delete() for task in missing))
    with pytest.raises(DependencyError):
        measured.modify(held.renew(9), *(task.delete() for task in missing), claimant="other")
    measured.claim_docs(DocClaim("n", "k"))
    with pytest.raises(DependencyError):
        measured.claim_docs(DocClaim("n", "k"), claimant="other")

    assert len(tasks) == 3
    assert shown("tasks_claimed_total", queue_name="a") == 1
    assert shown("task_modifications_total", table="work_tasks") == 4
    assert shown("task_faults_total", kind="DELETE") == 2
    assert shown("task_faults_total", kind="CLAIM") == 2


def test_modifications_in_a_callers_transaction_are_counted(
    measured: WorkQueue, database_url: URL, shown: Shown
) -> None:
    engine = create_engine(database_url)
    with engine.begin() as connection:
        task = measured.insert("a", connection=connection)
        with pytest.raises(DependencyError):
            measured.modify(Insert(queue="a", id=task.id), connection=connection)
    engine.dispose()

    assert shown("task_modifications_total", table="work_tasks") == 1
    assert shown("task_faults_total", kind="INSERT") == 1


def test_runs_are_counted_by_how_they_end(
    make_work: MakeWork, registry: CollectorRegistry, shown: Shown
) -> None:
    work = make_work(metrics_registry=registry)
    work.claim_docs(DocClaim("n", "held"), lease_seconds=3600)

    def handle(job: Job) -> Insert | None:
        match job.task.value:
            case "retried" if job.task.attempt == 0:
                raise ValueError
            case "moved":
                raise GiveUp
            case "lost":
                work.modify(job.task.delete(), claimant=job.task.claimant)
                return Insert(queue="never")
            case "given_back":
                raise StopWorker
        return None

    def docs(task: object) -> list[DocClaim]:
        return [DocClaim("n", "held")] if getattr(task, "value", "") == "put_off" else []

    for place, value in enumerate(("done", "retried", "moved", "lost", "put_off", "given_back")):
        at = work.time() - timedelta(seconds=60 - place)
        work.modify(Insert(queue="a", value=value, at=at))
    worker = Worker(
        work, handle, "a", docs=docs, retry=ImmediateRetries(3), metrics_registry=registry
    )
    worker.run()

    ends = ("done", "retried", "moved", "lost", "put_off", "given_back", "left")
    counted = {end: shown("task_runs_total", queue_name="a", end=end) for end in ends}
    assert counted == dict.fromkeys(ends[:-1], 1.0) | {"left": None}
    assert shown("task_run_seconds_count", queue_name="a") == 6


@needs.sqlite
def test_a_scrape_without_a_database_says_so(
    measured: WorkQueue, database_url: URL, shown: Shown
) -> None:
    measured.insert("a")
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE work_queue_counts")
    engine.dispose()

    assert shown("database_up", table="work_tasks") == 0
    assert shown("tasks", queue_name="a", state="available") is None


def test_tasks_that_go_into_history_are_counted(measured: WorkQueue, shown: Shown) -> None:
    measured.keep_history("a")
    tasks = measured.modify(*(Insert(queue=queue) for queue in "aab")).inserted
    measured.modify(*(task.delete() for task in tasks))
    assert shown("tasks_kept_total", queue_name="a") == 2
    assert shown("tasks_kept_total", queue_name="b") is None


def test_counters_name_no_more_queues_than_a_scrape_shows(
    make_work: MakeWork,
    measured: WorkQueue,
    registry: CollectorRegistry,
    shown: Shown,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("work_queue.metrics.QUEUES", 2)
    work = make_work(metrics_registry=registry)
    for queue in "abcd":
        measured.keep_history(queue)
        measured.modify(Insert(queue=queue), Insert(queue=queue))
        measured.modify(measured.claim(queue).delete())
        Worker(work, lambda _: None, queue, metrics_registry=registry).run(until_empty=True)

    for name in ("tasks_claimed_total", "tasks_kept_total", "task_run_seconds_count"):
        counted = {queue: shown(name, queue_name=queue) for queue in ("a", "b", "c", "d", "")}
        once = 1 if name == "task_run_seconds_count" else 2
        assert counted == {"a": once, "b": once, "c": None, "d": None, "": 2 * once}
    assert shown("task_runs_total", queue_name="", end="done") == 2
