"""Metrics of a work queue and of its workers, by prometheus-client."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from sqlalchemy.exc import SQLAlchemyError

from queue_core.errors import StickybusError
from queue_core.metric_families import Families, families_of
from queue_core.runtime.arguments import of_kind
from work_queue.counts import WorkStats
from work_queue.faults import DependencyError

TABLE = "work_tasks"
QUEUES = 1_000
"""Queues that a scrape shows at most: the first by name, and in counters the first that count."""
FURTHER = ""
"""How counters name all queues after those."""

_named: WeakKeyDictionary[Families, set[str]] = WeakKeyDictionary()
"""By registry, the queues that its counters name."""


class Metrics:
    """What one work queue, or one worker, counts in a registry (default: the client's own)."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        if registry is not None:
            of_kind(registry, CollectorRegistry, key="metrics_registry")
        self._families = families_of(registry if registry is not None else REGISTRY)
        self._counters = self._families.counters
        self._named = _named.setdefault(self._families, set())
        self._read: Callable[[], Sequence[WorkStats]] | None = None

    # -- counted ----------------------------------------------------------------------------------

    def claimed(self, queue: str, tasks: int) -> None:
        """Count the tasks of one claim."""
        self._counters["tasks_claimed"].labels(self._name_of(queue)).inc(tasks)

    def kept(self, queues: Mapping[str, int]) -> None:
        """Count tasks that went into history, by queue."""
        for queue, count in queues.items():
            self._counters["tasks_kept"].labels(self._name_of(queue)).inc(count)

    @contextmanager
    def modification(self) -> Iterator[None]:
        """Count a modification that is written within the block, or its parts at fault."""
        with self.refusal():
            yield
        self._counters["task_modifications"].labels(TABLE).inc()

    @contextmanager
    def refusal(self) -> Iterator[None]:
        """Count the parts at fault in a call within the block."""
        try:
            yield
        except DependencyError as error:
            for kind, count in Tally(fault.kind.value for fault in error.faults).items():
                self._counters["task_faults"].labels(kind).inc(count)
            raise

    def ran(self, queue: str, end: str, seconds: float) -> None:
        """Count a run of a worker's handler, by how it has ended, and time it."""
        name = self._name_of(queue)
        self._counters["task_runs"].labels(name, end).inc()
        self._families.histograms["task_run_seconds"].series((name,)).observe((seconds,))

    def _name_of(self, queue: str) -> str:
        """A queue as counters name it. They don't grow with names that come and go."""
        if queue not in self._named:
            if len(self._named) >= QUEUES:
                return FURTHER
            self._named.add(queue)
        return queue

    # -- read -------------------------------------------------------------------------------------

    def watch(self, read: Callable[[], Sequence[WorkStats]]) -> None:
        """Show the counts of the queues in each scrape."""
        self._read = read
        self._families.watched.add(self)

    def close(self) -> None:
        """Show no more gauges; counters keep their values."""
        self._families.watched.discard(self)

    def read_into(self, gauges: dict[str, GaugeMetricFamily]) -> None:
        """Add the queues to a scrape, unless another work queue of this registry did."""
        up, tasks = gauges["database_up"], gauges["tasks"]
        if self._read is None or any(sample.labels["table"] == TABLE for sample in up.samples):
            return
        try:
            queues = self._read()
        except (StickybusError, SQLAlchemyError):
            up.add_metric((TABLE,), 0)
            return
        up.add_metric((TABLE,), 1)
        for stats in queues:
            tasks.add_metric((stats.queue, "available"), stats.available)
            tasks.add_metric((stats.queue, "claimed"), stats.claimed)
            tasks.add_metric((stats.queue, "future"), stats.future)
