"""Metrics of a service: what its calls did, and what its queues have."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from queue_core.errors import (
    DatabaseUnreachableError,
    InvalidRequestError,
    LifecycleError,
    PayloadError,
    StickybusError,
)
from queue_core.metric_families import PREFIX, SECONDS
from work_queue.faults import DependencyError
from work_queue.rights import PermissionDeniedError, UnauthenticatedError
from work_queue.work_queue import WorkQueue

QUEUES = 1_000
"""Of so many queues a scrape tells."""
OUTCOMES: dict[type[BaseException], str] = {
    DependencyError: "dependency",
    InvalidRequestError: "invalid",
    PayloadError: "invalid",
    UnauthenticatedError: "unauthenticated",
    PermissionDeniedError: "denied",
    DatabaseUnreachableError: "unavailable",
    LifecycleError: "unavailable",
    asyncio.CancelledError: "cancelled",
}


class Metrics:
    """The metrics of one service, in a registry of its own."""

    def __init__(self, work: WorkQueue) -> None:
        self.registry = CollectorRegistry()
        self._calls = Counter(
            PREFIX + "work_calls",
            "Calls of the service, by what became of them",
            ("method", "outcome"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            PREFIX + "work_call_seconds",
            "Time that a call took, waits included",
            ("method",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self._waiting = Gauge(
            PREFIX + "work_claims_waiting",
            "Claims that wait for a task",
            registry=self.registry,
        )
        self.registry.register(_Queues(work))
        ProcessCollector(registry=self.registry)

    @contextmanager
    def call(self, method: str) -> Iterator[None]:
        """Count and time what is done within the block."""
        start, outcome = perf_counter(), "done"
        try:
            yield
        except BaseException as error:
            outcome = outcome_of(error)
            raise
        finally:
            self._calls.labels(method, outcome).inc()
            self._seconds.labels(method).observe(perf_counter() - start)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count a claim that waits within the block."""
        with self._waiting.track_inprogress():
            yield


def outcome_of(error: BaseException) -> str:
    """How a call has ended that raised this."""
    return next((name for kind, name in OUTCOMES.items() if isinstance(error, kind)), "failed")


class _Queues(Collector):
    """What queues have, from counters that are kept: no task is read for a scrape."""

    def __init__(self, work: WorkQueue) -> None:
        self._work = work

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(PREFIX + "work_database_up", "Whether the database answered")
        tasks = GaugeMetricFamily(
            PREFIX + "work_tasks",
            f"Tasks of the first {QUEUES:,} queues, by what they are: available, claimed or future",
            labels=("queue", "state"),
        )
        try:
            found = self._work.queue_stats(limit=QUEUES)
        except StickybusError:
            up.add_metric((), 0)
        else:
            up.add_metric((), 1)
            for stats in found:
                tasks.add_metric((stats.queue, "available"), stats.available)
                tasks.add_metric((stats.queue, "claimed"), stats.claimed)
                tasks.add_metric((stats.queue, "future"), stats.future)
        yield up
        yield tasks
