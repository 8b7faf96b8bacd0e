"""Metrics of one bus or service, by prometheus-client.

What happens per entry is observed per batch, under one lock. What stands in tables is read at the
scrape, in bounded index reads, and left out of a scrape that can't reach the database.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol, TypeVar

from prometheus_client import REGISTRY, CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from sqlalchemy.exc import SQLAlchemyError

from queue_core.metric_families import families_of
from queue_core.model.entry import Entry, State
from queue_core.model.outcome import ENDED, Finished, Lost, Outcome, Retried
from queue_core.reading.depths import QueueDepth


class _OfEntry(Protocol):
    """A call of a handler."""

    @property
    def entry(self) -> Entry:
        """The entry that is handled."""
        ...


class _OfQueue(Protocol):
    """A post."""

    @property
    def queue_name(self) -> str:
        """The queue that is posted to."""
        ...


H = TypeVar("H", bound=_OfEntry)
P = TypeVar("P", bound=_OfQueue)
R = TypeVar("R")


@dataclass(frozen=True)
class Reading:
    """What a scrape shows of this process, besides what was counted."""

    in_flight: int
    lease_left_seconds: float
    skew_seconds: float


class Metrics:
    """The metrics of one bus or service, in `registry` (default: prometheus-client's own)."""

    def __init__(self, table: str, registry: CollectorRegistry | None = None) -> None:
        self._table = table
        self._families = families_of(registry if registry is not None else REGISTRY)
        self._handler_seconds = self._families.histograms["handler_seconds"]
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
        """Show no more gauges.

        Counters keep their values: a bus that is made again goes on from them.
        """
        self._families.watched.discard(self)

    # -- counted ----------------------------------------------------------------------------------

    def _count(self, name: str, counts: Iterable[tuple[str, int]]) -> None:
        for queue_name, count in counts:
            counter = self._counters.get((name, queue_name))
            if counter is None:
                counter = self._families.counters[name].labels(self._table, queue_name)
                self._counters[name, queue_name] = counter
            counter.inc(count)

    def _observe(self, name: str, label: str, values: Sequence[float]) -> None:
        self._families.histograms[name].observe((self._table, label), values)

    def around_post(self, proceed: Callable[[P], list[int]], post: P) -> list[int]:
        """Middleware: count the entries of one post."""
        ids = proceed(post)
        self._count("entries_posted", [(post.queue_name, len(ids))])
        self._observe("batch_entries", "post", (len(ids),))
        return ids

    def around_handler(self, proceed: Callable[[H], R], call: H) -> R:
        """Middleware: time one call of a handler."""
        start = perf_counter()
        try:
            return proceed(call)
        finally:
            labels = self._table, call.entry.queue_name
            self._handler_seconds.observe(labels, (perf_counter() - start,))

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
        latencies = dict[str, list[float]]()
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
            if isinstance(outcome, Finished) and outcome.undelivered:
                counts["entries_undelivered", queue_name] += 1
        for (name, queue_name), count in counts.items():
            self._count(name, [(queue_name, count)])
        for queue_name, values in latencies.items():
            self._observe("start_latency_seconds", queue_name, values)
        self._observe("batch_entries", "finish", (len(batch),))

    @contextmanager
    def statement(self, name: str) -> Iterator[None]:
        """Time a transaction that commits within the block; one that raises is not counted."""
        start = perf_counter()
        yield
        self.took(name, perf_counter() - start)

    def took(self, name: str, seconds: float) -> None:
        """Time a transaction that has committed."""
        self._observe("statement_seconds", name, (seconds,))

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
