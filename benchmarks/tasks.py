"""The work queue: claims and deletes beside the bare driver, claims in long queues, fairness."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from sqlalchemy import URL

from benchmarks.databases import Target
from benchmarks.floor import Bare, bare
from benchmarks.measurement import Measurement, percentile
from benchmarks.workload import (
    FLOOR,
    LOAD_BATCH,
    WARM_UP,
    Sizes,
    VerificationError,
    alternating,
    compared,
    paced,
)
from sql.tables import work_queue_counts, work_tasks
from work_queue.modification import Insert
from work_queue.work_queue import WorkQueue

QUEUE = "benchmark"
MANY = 100
"""Tasks of one `claim_many`."""
CLIENTS, RATE = 20, 10
"""Clients that claim at a time, and how often a second each of them does."""
LEASE_SECONDS = 300.0
SIZES = {"large": 300, "medium": 60, "small": 20}
"""Queues of one worker, and their tasks."""
SMALL_SHARE, MEDIUM_SHARE = 1 / 3, 3 / 4
"""Of all claims: by then the queue must be empty."""


def tasks(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Claims and deletes of one client, one by one and many at a time, and the clients' shares."""
    entries = sizes.entries(10_000, MANY)
    works = {
        FLOOR: partial(_floor_rate, target, entries),
        "try_claim and delete": partial(_rate, target, entries, _one_by_one),
        f"claim_many of {MANY} and delete": partial(_rate, target, entries, _many_at_a_time),
    }
    yield from compared("tasks", target, sizes, works, entries=entries)
    yield _fairness(target)


@contextmanager
def work_on(url: URL) -> Iterator[WorkQueue]:
    """A work queue that no other scenario's scrape reads."""
    with WorkQueue(url, lease_seconds=LEASE_SECONDS, metrics_registry=CollectorRegistry()) as work:
        yield work


# -- rates ----------------------------------------------------------------------------------------


def _floor_rate(target: Target, entries: int) -> float:
    """Claims and deletes by the bare driver, tasks a second."""
    with target.fresh() as url, bare(url) as connection:
        fill(connection, entries)
        now = datetime.now(UTC)
        bound, until = connection.date(now), connection.date(now + timedelta(seconds=LEASE_SECONDS))
        ended = 0
        start = time.perf_counter()
        while (task := connection.claim_task(QUEUE, bound, until)) is not None:
            ended += connection.delete_task(task)
        rate = ended / (time.perf_counter() - start)
        with work_on(url) as work:
            _verify(work, ended, entries)
    return rate


def _rate(target: Target, entries: int, drain: Callable[[WorkQueue], int]) -> float:
    """Claims and deletes by `drain`, which returns their number, tasks a second."""
    with target.fresh() as url, bare(url) as connection, work_on(url) as work:
        fill(connection, entries + WARM_UP)
        for task in work.claim_many(QUEUE, limit=WARM_UP):
            work.modify(task.delete())
        start = time.perf_counter()
        ended = drain(work)
        rate = ended / (time.perf_counter() - start)
        _verify(work, ended, entries)
    return rate


def _one_by_one(work: WorkQueue) -> int:
    ended = 0
    while (claimed := work.try_claim(QUEUE)) is not None:
        work.modify(claimed.delete())
        ended += 1
    return ended


def _many_at_a_time(work: WorkQueue) -> int:
    ended = 0
    while claimed := work.claim_many(QUEUE, limit=MANY, timeout_seconds=0):
        work.modify(*(task.delete() for task in claimed))
        ended += len(claimed)
    return ended


def _verify(work: WorkQueue, ended: int, entries: int) -> None:
    if ended != entries or work.tasks(QUEUE, limit=1) or work.queues():
        raise VerificationError(f"{ended} of {entries} tasks ended; counted are {work.queues()}")


def fill(connection: Bare, entries: int, *, days: int = 0) -> None:
    """Insert tasks that are due in `days` days, and count them."""
    names = [column.name for column in work_tasks.columns]
    due = datetime.now(UTC) - timedelta(seconds=1) + timedelta(days=days)
    for first in range(0, entries, LOAD_BATCH):
        rows = [
            _row(f"{days}-{number:016x}", due + timedelta(microseconds=number))
            for number in range(first, min(first + LOAD_BATCH, entries))
        ]
        connection.insert_many(work_tasks, names, connection.encoded(work_tasks, rows))
    count = [{"name": QUEUE, "amount": entries}]
    connection.insert_many(
        work_queue_counts, list(count[0]), connection.encoded(work_queue_counts, count)
    )


def _row(task_id: str, due: datetime) -> dict[str, Any]:
    known: dict[str, Any] = dict.fromkeys(column.name for column in work_tasks.columns)
    return known | {
        "task_id": task_id,
        "queue": QUEUE,
        "version": 0,
        "arrival_date": due,
        "claimant": "",
        "claims": 0,
        "attempt": 0,
        "created_date": due,
        "modified_date": due,
        "value_json": '{"number": 41}',
    }


# -- latencies ------------------------------------------------------------------------------------


def task_claims(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """The time of a claim by one of 20 clients, whatever is in the queue."""
    claims = sizes.entries(4_000, CLIENTS * 5)
    large = sizes.standing(1_000_000, claims + 2 * LOAD_BATCH)
    works = {
        "the bare driver's": partial(_bare_latencies, target, claims),
        f"of {LOAD_BATCH + claims:,} tasks": partial(_latencies, target, claims),
        f"of {large:,} tasks": partial(_latencies, target, claims, standing=large),
        f"beside {large:,} future tasks": partial(_latencies, target, claims, future=large),
    }
    found = alternating(max(1, sizes.rounds // 2), works)
    settings = {"clients": CLIENTS, "rate": CLIENTS * RATE, "claims": claims}
    p99 = dict[str, float]()
    for metric, rounds in found.items():
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            p99[metric] = statistics.median(percentile(one, share) * 1e3 for one in rounds)
            what = f"claim, {metric}, {name}"
            yield Measurement("task-claims", target.name, what, p99[metric], "ms", settings)
    floor, *others = works
    for metric in others:
        what, ratio = f"claim p99 {metric}, to {floor}", p99[metric] / p99[floor]
        yield Measurement("task-claims", target.name, what, ratio, "x", settings)


def _latencies(target: Target, claims: int, *, standing: int = 0, future: int = 0) -> list[float]:
    """Seconds of each claim; the clients claim at fixed times, whatever the one before took."""
    with target.fresh() as url, bare(url) as connection:
        fill(connection, max(standing, claims + LOAD_BATCH))
        if future:
            fill(connection, future, days=1)
        with work_on(url) as work:

            def claim(number: int) -> object:
                return work.try_claim(QUEUE, claimant=f"client-{number}")

            return _claimed([partial(claim, number) for number in range(CLIENTS)], claims)


def _bare_latencies(target: Target, claims: int) -> list[float]:
    with target.fresh() as url, ExitStack() as opened:
        clients = [opened.enter_context(bare(url)) for _ in range(CLIENTS)]
        fill(clients[0], claims + LOAD_BATCH)
        now = datetime.now(UTC)
        bound, until = (clients[0].date(now + timedelta(seconds=after)) for after in (0, 300))
        calls = [partial(client.claim_task, QUEUE, bound, until) for client in clients]
        return _claimed(calls, claims)


def _claimed(calls: Sequence[Callable[[], object]], claims: int) -> list[float]:
    begin = threading.Barrier(CLIENTS)

    def client(number: int) -> list[float]:
        took = list[float]()
        calls[number]()  # opens its connection
        begin.wait()
        start = time.perf_counter() + number / CLIENTS / RATE
        for _ in paced(claims // CLIENTS, RATE, start=start):
            before = time.perf_counter()
            if calls[number]() is None:
                raise VerificationError("nothing was claimed of a queue that has tasks")
            took.append(time.perf_counter() - before)
        return took

    with ThreadPoolExecutor(CLIENTS) as pool:
        return [seconds for took in pool.map(client, range(CLIENTS)) for seconds in took]


# -- fairness -------------------------------------------------------------------------------------


def _fairness(target: Target) -> Measurement:
    """When the small queue is empty that shares workers with longer ones."""
    with target.fresh() as url, work_on(url) as work:
        for queue, count in SIZES.items():
            work.modify(*(Insert(queue=queue) for _ in range(count)))
        claimed, lock = list[str](), threading.Lock()

        def worker(number: int) -> None:
            while True:
                task = work.try_claim(*SIZES, claimant=f"worker-{number}")
                if task is None:
                    return
                with lock:
                    claimed.append(task.queue)
                work.modify(task.delete(), claimant=task.claimant)

        with ThreadPoolExecutor(5) as pool:
            list(pool.map(worker, range(5)))
    if Counter(claimed) != SIZES:
        raise VerificationError(f"claimed are {Counter(claimed)}, not {SIZES}")
    small, medium = _share(claimed, "small"), _share(claimed, "medium")
    if small > SMALL_SHARE or medium > MEDIUM_SHARE:
        raise VerificationError(
            f"the small queue was empty after {small:.0%} of the claims, the medium one after "
            f"{medium:.0%}"
        )
    settings = {"tasks": SIZES, "medium queue": medium}
    return Measurement(
        "tasks", target.name, "claims until a small queue is empty", small, "of all", settings
    )


def _share(claimed: Sequence[str], queue: str) -> float:
    last = max(place for place, one in enumerate(claimed) if one == queue)
    return (last + 1) / len(claimed)
