"""Metrics, by prometheus-client.

The families of a registry are made once, so that many buses and services of a process share them:
the label `table` tells these apart. What happens per entry is observed per batch, under one lock;
what stands in tables is read at the scrape, in bounded index reads, and left out of a scrape that
can't reach the database.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from prometheus_client import REGISTRY, CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from sqlalchemy.exc import SQLAlchemyError

from queue_core.model.entry import Entry, State
from queue_core.model.outcome import ENDED, Finished, Lost, Outcome, Retried
from queue_core.reading.depths import QueueDepth
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

COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "entries_posted": (
        "Entries inserted, those included that a caller's transaction may still roll back",
        QUEUE,
    ),
    "entries_claimed": (
        "Entries claimed from the table, retries too; not those that were born claimed",
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
    "claims_lost": ("Outcomes that were not written, since the entry had been taken over", QUEUE),
    "leases_lost": ("Times that this node was declared dead while it lived", TABLE),
}
"""Name without prefix and `_total` to help text and labels."""

HISTOGRAMS: dict[str, tuple[str, tuple[str, ...], tuple[float, ...]]] = {
    "start_latency_seconds": (
        "From an entry's effective date (of a post: just before its commit) to its start",
        QUEUE,
        SECONDS,
    ),
    "handler_seconds": (
        "Time that an entry's handlers took, their waits for a turn included",
        QUEUE,
        SECONDS,
    ),
    "statement_seconds": (
        "Time of a transaction of the engine, its commit included",
        ("table", "statement"),
        SECONDS,
    ),
    "batch_entries": ("Entries in one transaction of the engine", ("table", "statement"), SIZES),
}

GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "entries_ready": (
        "Entries due and not running, in all lanes; at most some 10,000 are counted",
        QUEUE,
    ),
    "oldest_ready_age_seconds": ("How long the oldest of the ready entries has been due", QUEUE),
    "entries_parked": (
        "Entries whose type or queue no node has known; at most some 10,000 are counted",
        QUEUE,
    ),
    "entries_in_flight": (
        "Entries held by this process: claimed or born claimed, their outcome not yet written",
        TABLE,
    ),
    "node_lease_left_seconds": (
        "Seconds until this node starts nothing more, were no further beat to succeed",
        TABLE,
    ),
    "clock_skew_seconds": ("What the database's clock is ahead of this machine's", TABLE),
    "database_up": ("1 if this scrape reached the database, else 0", TABLE),
}


@dataclass(frozen=True)
class Reading:
    """What a scrape shows of this process, besides what was counted."""

    in_flight: int
    lease_left_seconds: float
    skew_seconds: float


class _Histogram:
    """Counts by bucket; prometheus-client's own takes two locks a value."""

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self._buckets = buckets
        self._lock = Lock()
        self._observed: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}

    def observe(self, labels: tuple[str, ...], values: Iterable[float]) -> None:
        buckets = self._buckets
        with self._lock:
            known = self._observed.get(labels)
            if known is None:
                known = self._observed[labels] = [0] * (len(buckets) + 1), [0.0]
            counts, total = known
            for value in values:
                counts[bisect_left(buckets, value)] += 1
                total[0] += value

    def add_to(self, family: HistogramMetricFamily) -> None:
        bounds = [*map(floatToGoString, self._buckets), "+Inf"]
        with self._lock:
            observed = [
                (labels, list(counts), total[0])
                for labels, (counts, total) in self._observed.items()
            ]
        for labels, counts, total in observed:
            sums = [sum(counts[: place + 1]) for place in range(len(counts))]
            family.add_metric(
                labels,
                [(bound, float(count)) for bound, count in zip(bounds, sums, strict=True)],
                total,
            )


class _Families(Collector):
    """The metrics of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.counters = {
            name: Counter(PREFIX + name, text, labels, registry=registry)
            for name, (text, labels) in COUNTERS.items()
        }
        self.histograms = {
            name: _Histogram(buckets) for name, (_, _, buckets) in HISTOGRAMS.items()
        }
        self.watched: weakref.WeakSet[Metrics] = weakref.WeakSet()
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        for name, (text, labels, _) in HISTOGRAMS.items():
            yield HistogramMetricFamily(PREFIX + name, text, labels=labels)
        for name, (text, labels) in GAUGES.items():
            yield GaugeMetricFamily(PREFIX + name, text, labels=labels)

    def collect(self) -> Iterable[Metric]:
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


_families: weakref.WeakKeyDictionary[CollectorRegistry, _Families] = weakref.WeakKeyDictionary()
_families_lock = Lock()


def _families_of(registry: CollectorRegistry) -> _Families:
    with _families_lock:
        if registry not in _families:
            _families[registry] = _Families(registry)
        return _families[registry]


class Metrics:
    """The metrics of one bus or service, in `registry` (default: prometheus-client's own)."""

    def __init__(self, table: str, registry: CollectorRegistry | None = None) -> None:
        self._table = table
        self._families = _families_of(registry if registry is not None else REGISTRY)
        self._counters: dict[tuple[str, str], Counter] = {}
        self._sources: tuple[Callable[[], Reading], Callable[[], Sequence[QueueDepth]]] | None = (
            None
        )

    def watch(
        self, reading: Callable[[], Reading], depths: Callable[[], Sequence[QueueDepth]]
    ) -> None:
        """Show in each scrape a `reading` of this process, and `depths`, from the database."""
        self._sources = reading, depths
        self._families.watched.add(self)

    def close(self) -> None:
        """Show gauges no more; counters keep their values, as a bus made again goes on from them."""
        self._families.watched.discard(self)

    # -- counted ----------------------------------------------------------------------------------

    def _count(self, name: str, counts: Iterable[tuple[str, int]]) -> None:
        for queue_name, count in counts:
            counter = self._counters.get((name, queue_name))
            if counter is None:
                counter = self._families.counters[name].labels(self._table, queue_name)
                self._counters[name, queue_name] = counter
            counter.inc(count)

    def _observe(self, name: str, label: str, values: Iterable[float]) -> None:
        self._families.histograms[name].observe((self._table, label), values)

    def posted(self, queue_name: str, count: int, seconds: float | None = None) -> None:
        """Count the entries of one post, and time its transaction if it was ours."""
        self._count("entries_posted", [(queue_name, count)])
        self._observe("batch_entries", "post", (count,))
        if seconds is not None:
            self._observe("statement_seconds", "post", (seconds,))

    def claimed(self, entries: Sequence[Entry]) -> None:
        """Count the entries of one claim."""
        self._count("entries_claimed", Tally(entry.queue_name for entry in entries).items())
        self._observe("batch_entries", "claim", (len(entries),))

    def reaped(self, queue_names: Iterable[str]) -> None:
        """Count entries taken from a dead node, given by their queues."""
        self._count("entries_reaped", Tally(queue_names).items())

    def lease_lost(self) -> None:
        """Count that this node was declared dead."""
        self._families.counters["leases_lost"].labels(self._table).inc()

    def finished(self, batch: Sequence[Outcome], lost: set[int]) -> None:
        """Count a batch of outcomes that was written, except those whose ids are in `lost`."""
        counts = Tally[tuple[str, str]]()
        latencies, durations = dict[str, list[float]](), dict[str, list[float]]()
        for outcome in batch:
            entry = outcome.entry
            queue_name = entry.queue_name
            # For each entry: a match, or a union in isinstance, would cost several times as much.
            if entry.record_id in lost or isinstance(outcome, Lost):
                counts["claims_lost", queue_name] += 1
                continue
            if isinstance(outcome, ENDED):
                processed = outcome.state is State.PROCESSED
                counts["entries_processed" if processed else "entries_failed", queue_name] += 1
            elif isinstance(outcome, Retried):
                counts["entries_retried", queue_name] += 1
            else:
                continue
            if outcome.started_date is None:
                continue
            waited = (outcome.started_date - entry.effective_date).total_seconds()
            latencies.setdefault(queue_name, []).append(waited if waited > 0 else 0.0)
            if isinstance(outcome, Finished):
                took = (outcome.finished_date - outcome.started_date).total_seconds()
                durations.setdefault(queue_name, []).append(took)
                if outcome.undelivered:
                    counts["entries_undelivered", queue_name] += 1
        for (name, queue_name), count in counts.items():
            self._count(name, [(queue_name, count)])
        for queue_name, values in latencies.items():
            self._observe("start_latency_seconds", queue_name, values)
        for queue_name, values in durations.items():
            self._observe("handler_seconds", queue_name, values)
        self._observe("batch_entries", "finish", (len(batch),))

    @contextmanager
    def statement(self, name: str) -> Iterator[None]:
        """Time a transaction that commits within the block; one that raises is not counted."""
        start = perf_counter()
        yield
        self._observe("statement_seconds", name, (perf_counter() - start,))

    # -- read -------------------------------------------------------------------------------------

    def read_into(self, gauges: dict[str, GaugeMetricFamily]) -> None:
        """Add this bus's or service's gauges to a scrape."""
        if self._sources is None:
            return
        read, read_depths = self._sources
        table, reading = (self._table,), read()
        gauges["entries_in_flight"].add_metric(table, reading.in_flight)
        gauges["node_lease_left_seconds"].add_metric(table, reading.lease_left_seconds)
        gauges["clock_skew_seconds"].add_metric(table, reading.skew_seconds)
        try:
            depths = read_depths()
        except SQLAlchemyError:
            gauges["database_up"].add_metric(table, 0)
            return
        gauges["database_up"].add_metric(table, 1)
        for depth in depths:
            labels = (self._table, depth.queue_name)
            gauges["entries_ready"].add_metric(labels, depth.ready)
            gauges["oldest_ready_age_seconds"].add_metric(labels, depth.oldest_age_seconds)
            gauges["entries_parked"].add_metric(labels, depth.parked)
