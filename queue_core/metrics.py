"""Metrics of one bus or service, by prometheus-client.

Events of single entries are observed per batch, under one lock. Counts of tables are read at the
scrape, in bounded index reads. A scrape that can't reach the database leaves them out.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from time import perf_counter
from typing import Protocol, TypeAlias, TypeVar

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from sqlalchemy.exc import SQLAlchemyError

from queue_core.metric_families import families_of
from queue_core.model.entry import Entry
from queue_core.model.keyed import Posted
from queue_core.model.outcome import ENDED, Finished, Lost, Outcome, Retried
from queue_core.model.states import State
from queue_core.reading.depths import QueueDepth
from queue_core.reading.obstacles import Obstacles


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


_QUEUE_NAME = attrgetter("queue_name")

H = TypeVar("H", bound=_OfEntry)
P = TypeVar("P", bound=_OfQueue)
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True)
class Reading:
    """The values that a scrape shows of this process, besides the counters."""

    in_flight: int
    lease_left_seconds: float
    skew_seconds: float


class _Labelled(dict[tuple[str, str], T]):
    """The counters, by name and last label; `make` makes missing ones."""

    def __init__(self, make: Callable[[str, str], T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: tuple[str, str]) -> T:
        made = self[key] = self._make(*key)
        return made


Sources: TypeAlias = tuple[
    Callable[[], Reading],
    Callable[[], Sequence[QueueDepth]],
    Callable[[], Sequence[Obstacles]],
    Callable[[], int],
]
"""The sources of a scrape: this process, the depths of queues, what holds entries of them, and the
number of incomplete groups.
"""


class Metrics:
    """The metrics of one bus or service, in `registry` (default: prometheus-client's own)."""

    def __init__(self, table: str, registry: CollectorRegistry | None = None) -> None:
        self._table = table
        families = self._families = families_of(registry if registry is not None else REGISTRY)
        self._counters = _Labelled(lambda name, label: families.counters[name].labels(table, label))
        self._series = _Labelled(
            lambda name, label: families.histograms[name].series((table, label))
        )
        self._sources: Sources | None = None

    def watch(
        self,
        reading: Callable[[], Reading],
        depths: Callable[[], Sequence[QueueDepth]],
        obstacles: Callable[[], Sequence[Obstacles]],
        groups: Callable[[], int],
    ) -> None:
        """Show in each scrape a `reading` of this process, and the depths of the database.

        That is the `depths` of queues, the `obstacles` that hold entries of them, and how many
        `groups` are not complete.
        """
        self._sources = reading, depths, obstacles, groups
        self._families.watched.add(self)

    def close(self) -> None:
        """Show no more gauges.

        Counters keep their values: a bus that is made again goes on from them.
        """
        self._families.watched.discard(self)

    # -- counted ----------------------------------------------------------------------------------

    def around_post(self, proceed: Callable[[P], list[int]], post: P) -> list[int]:
        """Middleware: count the entries of one post."""
        ids = proceed(post)
        entries, queue_name = len(ids), post.queue_name
        keyed = [one for one in ids if type(one) is Posted]
        if keyed:
            entries -= sum(not one.created for one in keyed)
            for answer, count in Tally(one.answer.value for one in keyed).items():
                labels = (self._table, queue_name, answer)
                self._families.counters["keyed_posts"].labels(*labels).inc(count)
        self._counters["entries_posted", queue_name].inc(entries)
        self._series["batch_entries", "post"].observe((entries,))
        return ids

    def around_handler(self, proceed: Callable[[H], R], call: H) -> R:
        """Middleware: time one call of a handler."""
        start = perf_counter()
        try:
            return proceed(call)
        finally:
            seconds = perf_counter() - start
            self._series["handler_seconds", call.entry.queue_name].observe((seconds,))

    def claimed(self, entries: Sequence[Entry]) -> None:
        """Count the entries of one claim."""
        for queue_name, count in Tally(map(_QUEUE_NAME, entries)).items():
            self._counters["entries_claimed", queue_name].inc(count)
        self._series["batch_entries", "claim"].observe((len(entries),))

    def reaped(self, queue_names: Iterable[str]) -> None:
        """Count entries taken from a dead node, given by their queues."""
        for queue_name, count in Tally(queue_names).items():
            self._counters["entries_reaped", queue_name].inc(count)

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
            waited = (outcome.started_date - entry.due_since).total_seconds()
            latencies.setdefault(queue_name, []).append(waited if waited > 0 else 0.0)
            if isinstance(outcome, Finished) and outcome.undelivered:
                counts["entries_undelivered", queue_name] += 1
        for key, count in counts.items():
            self._counters[key].inc(count)
        for queue_name, values in latencies.items():
            self._series["start_latency_seconds", queue_name].observe(values)
        self._series["batch_entries", "finish"].observe((len(batch),))

    @contextmanager
    def statement(self, name: str) -> Iterator[None]:
        """Time a transaction that commits within the block; one that raises is not counted."""
        start = perf_counter()
        yield
        self.took(name, perf_counter() - start)

    def took(self, name: str, seconds: float) -> None:
        """Time a transaction that has committed."""
        self._series["statement_seconds", name].observe((seconds,))

    # -- read -------------------------------------------------------------------------------------

    def read_into(self, gauges: dict[str, GaugeMetricFamily]) -> None:
        """Add this bus's or service's gauges to a scrape."""
        if self._sources is None:
            return
        read, read_depths, read_obstacles, read_groups = self._sources
        table, reading = (self._table,), read()
        gauges["entries_in_flight"].add_metric(table, reading.in_flight)
        gauges["node_lease_left_seconds"].add_metric(table, reading.lease_left_seconds)
        gauges["clock_skew_seconds"].add_metric(table, reading.skew_seconds)
        try:
            depths, obstacles, groups = read_depths(), read_obstacles(), read_groups()
        except SQLAlchemyError:
            gauges["database_up"].add_metric(table, 0)
            return
        gauges["database_up"].add_metric(table, 1)
        gauges["groups_incomplete"].add_metric(table, groups)
        for depth in depths:
            labels = (self._table, depth.queue_name)
            gauges["entries_ready"].add_metric(labels, depth.ready)
            gauges["oldest_ready_age_seconds"].add_metric(labels, depth.oldest_age_seconds)
            gauges["entries_limited"].add_metric(labels, depth.limited)
            gauges["entries_parked"].add_metric(labels, depth.parked)
            gauges["entries_paused"].add_metric(labels, depth.paused)
        for queue in obstacles:
            labels = (self._table, queue.queue_name)
            gauges["order_keys_held"].add_metric(labels, queue.held_keys)
            gauges["circuits_open"].add_metric(labels, queue.open_circuits)
            gauges["pauses_in_force"].add_metric(labels, queue.pauses)
