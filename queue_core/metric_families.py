"""The families of metrics: their names, help texts, labels and buckets, by registry.

The families of a registry are made once, so that many buses and services of a process share them:
the label `table` tells these apart.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from queue_core.runtime.lock import Lock

PREFIX = "stickybus_"
SECONDS = (
    0.0001,
    0.0003,
    0.001,
    0.003,
    0.01,
    0.03,
    0.1,
    0.3,
    1.0,
    3.0,
    10.0,
    30.0,
    100.0,
    300.0,
    1_000.0,
)
SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 10_000.0)

QUEUE = ("table", "queue_name")
TABLE = ("table",)
TASKS = ("queue_name",)

COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "entries_posted": (
        "Entries inserted, including those that a caller's transaction may still roll back",
        QUEUE,
    ),
    "keyed_posts": (
        "Posts with an idempotency key, by their answers",
        (*QUEUE, "answer"),
    ),
    "entries_claimed": (
        "Entries claimed from the table, including retries, but not those that were born claimed",
        QUEUE,
    ),
    "entries_processed": ("Entries that ended PROCESSED here", QUEUE),
    "entries_failed": ("Entries that ended FAILED here: the dead letters", QUEUE),
    "entries_retried": ("Runs that failed and left their entry to be run again", QUEUE),
    "entries_undelivered": (
        "Entries that ended PROCESSED although nobody subscribes to them",
        QUEUE,
    ),
    "entries_reaped": ("Entries taken from a dead node's lane by this process", QUEUE),
    "claims_lost": ("Outcomes that were not written, because the entry had been taken over", QUEUE),
    "leases_lost": ("Times that this node was declared dead while it lived", TABLE),
    "tasks_claimed": ("Tasks of a work queue that were claimed here", TASKS),
    "task_modifications": ("Modifications of a work queue that were written here", TABLE),
    "task_faults": ("The parts at fault in modifications and claims of docs", ("kind",)),
    "tasks_kept": ("Tasks that went into the history of their queue here", TASKS),
    "task_runs": ("Runs of workers of a work queue, by their ends", (*TASKS, "end")),
}
"""Name without prefix and `_total` to help text and labels."""

HISTOGRAMS: dict[str, tuple[str, tuple[str, ...], tuple[float, ...]]] = {
    "start_latency_seconds": (
        "From an entry's effective date (of a post: just before its commit) to its start",
        QUEUE,
        SECONDS,
    ),
    "handler_seconds": (
        "Duration of one call of a handler, including failed calls",
        QUEUE,
        SECONDS,
    ),
    "statement_seconds": (
        "Duration of a transaction of the engine, including its commit",
        ("table", "statement"),
        SECONDS,
    ),
    "batch_entries": ("Entries in one transaction of the engine", ("table", "statement"), SIZES),
    "task_run_seconds": ("Time from a task's claim to the end of its run", TASKS, SECONDS),
}

GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "entries_ready": (
        "Entries due and not running, in all lanes; at most some 10,000 are counted",
        QUEUE,
    ),
    "oldest_ready_age_seconds": ("How long the oldest of the ready entries has been due", QUEUE),
    "entries_limited": (
        "Those of the ready entries that wait for a place of a limit of their queue or key",
        QUEUE,
    ),
    "entries_parked": (
        "Entries whose type or queue no node has known; at most some 10,000 are counted",
        QUEUE,
    ),
    "entries_paused": (
        "Entries that wait for the end of a pause; at most some 10,000 are counted",
        QUEUE,
    ),
    "order_keys_held": (
        "Order keys that a failed entry holds; the first 10,000 keys are looked at",
        QUEUE,
    ),
    "circuits_open": ("Handlers whose failed entries wait for a probe", QUEUE),
    "pauses_in_force": ("Pauses of the queue, its handlers and its order keys", QUEUE),
    "groups_incomplete": (
        "Groups that are not sealed, or of which members live; at most 10,000 are counted",
        TABLE,
    ),
    "entries_in_flight": (
        "Entries held by this process: claimed or born claimed, their outcome not yet written",
        TABLE,
    ),
    "node_lease_left_seconds": (
        "Seconds until this node starts nothing more, if no further beat succeeds",
        TABLE,
    ),
    "clock_skew_seconds": ("How far the database's clock is ahead of this machine's", TABLE),
    "tasks": (
        "Tasks of a work queue that are available, claimed, or due later",
        (*TASKS, "state"),
    ),
    "database_up": ("1 if this scrape reached the database, else 0", TABLE),
}


UNCOUNTED = 100
"""Observations that a series keeps at most before it counts them."""


class Series:
    """The observations with the same labels, counted by bucket.

    An observation is one append, without a lock, since each event makes six. They are counted many
    at a time.
    """

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self._buckets = buckets
        self._uncounted = deque[float]()
        self._lock = Lock()
        self._counts, self._total = [0] * (len(buckets) + 1), 0.0

    def observe(self, values: Sequence[float]) -> None:
        """Take values."""
        self._uncounted.extend(values)
        if len(self._uncounted) > UNCOUNTED:
            self.counted()

    def counted(self) -> tuple[list[int], float]:
        """The number of values by bucket, and their sum."""
        with self._lock:
            self._count()
            return list(self._counts), self._total

    def _count(self) -> None:
        uncounted, counts = self._uncounted, self._counts
        # One search for each bound costs half of one for each value.
        values = sorted([uncounted.popleft() for _ in range(len(uncounted))])
        counted = 0
        for place, bound in enumerate(self._buckets):
            up_to = bisect_right(values, bound, counted)
            counts[place] += up_to - counted
            counted = up_to
        counts[-1] += len(values) - counted
        self._total += sum(values)


class Histogram:
    """One family of series."""

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self._buckets = buckets
        self._series: dict[tuple[str, ...], Series] = {}

    def series(self, labels: tuple[str, ...]) -> Series:
        """The series with these labels, which is made when it is first asked for."""
        return self._series.get(labels) or self._series.setdefault(labels, Series(self._buckets))

    def add_to(self, family: HistogramMetricFamily) -> None:
        """Add all values to a scrape."""
        bounds = [*map(floatToGoString, self._buckets), "+Inf"]
        for labels, series in list(self._series.items()):
            counts, total = series.counted()
            sums = [sum(counts[: place + 1]) for place in range(len(counts))]
            family.add_metric(
                labels,
                [(bound, float(count)) for bound, count in zip(bounds, sums, strict=True)],
                total,
            )


class Watched(Protocol):
    """One bus or service, as a scrape sees it."""

    def read_into(self, gauges: dict[str, GaugeMetricFamily]) -> None:
        """Add its gauges."""
        ...


class Families(Collector):
    """The metrics of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.counters = {
            name: Counter(PREFIX + name, text, labels, registry=registry)
            for name, (text, labels) in COUNTERS.items()
        }
        self.histograms = {name: Histogram(buckets) for name, (_, _, buckets) in HISTOGRAMS.items()}
        self.watched: weakref.WeakSet[Watched] = weakref.WeakSet()
        """The values that are read at a scrape."""
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """See `Collector.describe`: the families besides the counters."""
        for name, (text, labels, _) in HISTOGRAMS.items():
            yield HistogramMetricFamily(PREFIX + name, text, labels=labels)
        for name, (text, labels) in GAUGES.items():
            yield GaugeMetricFamily(PREFIX + name, text, labels=labels)

    def collect(self) -> Iterable[Metric]:
        """See `Collector.collect`."""
        for name, (text, labels, _) in HISTOGRAMS.items():
            histogram = HistogramMetricFamily(PREFIX + name, text, labels=labels)
            self.histograms[name].add_to(histogram)
            yield histogram
        gauges = {
            name: GaugeMetricFamily(PREFIX + name, text, labels=labels)
            for name, (text, labels) in GAUGES.items()
        }
        for metrics in list(self.watched):
            metrics.read_into(gauges)
        yield from gauges.values()


_families: weakref.WeakKeyDictionary[CollectorRegistry, Families] = weakref.WeakKeyDictionary()
_families_lock = Lock()


def families_of(registry: CollectorRegistry) -> Families:
    """The metrics of a registry, which are made once."""
    with _families_lock:
        if registry not in _families:
            _families[registry] = Families(registry)
        return _families[registry]
