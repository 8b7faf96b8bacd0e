"""Metrics of a service: what its calls did. Those of its work queue stand beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from queue_core.errors import (
    DatabaseUnreachableError,
    InvalidRequestError,
    LifecycleError,
    PayloadError,
)
from queue_core.metric_families import PREFIX, SECONDS
from work_queue.faults import DependencyError
from work_queue.rights import PermissionDeniedError, UnauthenticatedError
from work_queue.service.unavailable import UNAVAILABLE

OUTCOMES: dict[type[BaseException], str] = {
    DependencyError: "dependency",
    InvalidRequestError: "invalid",
    PayloadError: "invalid",
    UnauthenticatedError: "unauthenticated",
    PermissionDeniedError: "denied",
    DatabaseUnreachableError: "unavailable",
    LifecycleError: "unavailable",
    **dict.fromkeys(UNAVAILABLE, "unavailable"),
    asyncio.CancelledError: "cancelled",
}


class Metrics:
    """The metrics of the only service of a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._calls = Counter(
            PREFIX + "work_calls",
            "Calls of the service, by outcome",
            ("method", "outcome"),
            registry=registry,
        )
        self._seconds = Histogram(
            PREFIX + "work_call_seconds",
            "Duration of a call, including waits",
            ("method",),
            buckets=SECONDS,
            registry=registry,
        )
        self._waiting = Gauge(
            PREFIX + "work_claims_waiting",
            "Claims that wait for a task",
            registry=registry,
        )
        ProcessCollector(registry=registry)

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
