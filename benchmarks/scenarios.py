"""The scenarios. Each takes a database and sizes, and yields measurements once its tables have been verified."""

from __future__ import annotations

import itertools
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry
from sqlalchemy import URL, select
from sqlalchemy.event import listen

from benchmarks.databases import Target
from benchmarks.measurement import Measurement, percentile
from bus.persistent import PersistentBus
from queue_core.config import BusConfig
from queue_core.metrics import Metrics
from queue_core.outcome import Outcome

COMPLETION_SECONDS = 300.0
LOAD_BATCH = 1_000
POST_MANY = 100
TRUNCATE_PAUSE_SECONDS = 0.1


class VerificationError(Exception):
    """The tables don't hold what the scenario did: its figures mean nothing."""


@dataclass(frozen=True)
class Sizes:
    """How much a scenario does: `scale` multiplies its full size, `rounds` repeats comparisons."""

    scale: float
    rounds: int

    def entries(self, full: int, least: int = 20) -> int:
        """Entries of a scenario whose full size is `full`."""
        return max(least, round(full * self.scale))


@dataclass(frozen=True)
class Ticked:
    """The event that is posted: as small as events get in practice."""

    number: int
    account: str = "5f0c1b6e-4f0a-4a55-9c43-6a3f1f0f4a11"


class Run:
    """One bus on a fresh database, with a handler that does nothing but count."""

    def __init__(self, url: URL, config: BusConfig | None = None) -> None:
        self.bus = PersistentBus(url, config, metrics_registry=CollectorRegistry())
        self.posted: list[int] = []
        self._numbers = itertools.count(1)
        self._handled = 0
        self._target = sys.maxsize
        self._reached = threading.Event()

    def handle(self, _event: Ticked) -> None:
        """The handler."""
        self._handled = next(self._numbers)
        if self._handled >= self._target:
            self._reached.set()

    def start(self, handler: Callable[[Ticked], None] | None = None) -> None:
        """Deliver to `handler`, which calls `handle` (default: that itself)."""
        self.bus.register(Ticked, handler or self.handle, name="benchmark")
        self.bus.start()

    def load(self, entries: int) -> None:
        """Post a backlog in large batches; its numbers are negative."""
        for start in range(-entries, 0, LOAD_BATCH):
            batch = [Ticked(number) for number in range(start, min(start + LOAD_BATCH, 0))]
            self.posted += self.bus.post_many(batch)

    def wait(self) -> None:
        """Return once the outcome of everything posted is committed. Raises VerificationError if it takes too long."""
        self._target = len(self.posted)
        deadline = time.perf_counter() + COMPLETION_SECONDS
        if self._handled < self._target and not self._reached.wait(COMPLETION_SECONDS):
            raise VerificationError(
                f"{self._handled} of {self._target} entries handled in {COMPLETION_SECONDS} s"
            )
        while len(self.bus.engine.lifecycle.ledger):
            if time.perf_counter() > deadline:
                raise VerificationError("outcomes are still unwritten")
            time.sleep(0.0005)

    def verify(self, *, delivered: bool = True, truncated: int = 0) -> None:
        """Check that everything posted is once in history as PROCESSED, or once in the main table if not `delivered`.

        `truncated` rows of history are gone. Raises VerificationError.
        """
        self.bus.engine.lifecycle.stop()
        statements = self.bus.engine.store.statements
        main, past = statements.main, statements.past
        with self.bus.engine.database.read() as connection:
            waiting = list(connection.execute(select(main.c.record_id)).scalars())
            ended = connection.execute(select(past.c.record_id, past.c.processing_state)).all()
        here, elsewhere = ([row.record_id for row in ended], waiting) if delivered else (waiting, ended)
        if (
            elsewhere
            or len(here) + truncated != len(self.posted)
            or len(set(here)) != len(here)
            or not set(here) <= set(self.posted)
            or any(row.processing_state != "PROCESSED" for row in ended)
        ):
            raise VerificationError(
                f"posted {len(self.posted)}, truncated {truncated}; history holds {len(ended)}, the main table {len(waiting)}"
            )


@contextmanager
def run_on(target: Target, config: BusConfig | None = None) -> Iterator[Run]:
    """A run on a fresh database."""
    with target.fresh() as url:
        run = Run(url, config)
        try:
            yield run
        finally:
            run.bus.close()


def post(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Post one event per commit: alone, and while the same process handles them."""
    entries = sizes.entries(10_000)
    for metric, delivering in (("post rate", False), ("post rate while delivering", True)):
        with run_on(target) as run:
            if delivering:
                run.start()
            run.posted += [run.bus.post(Ticked(number)) for number in range(10)]
            start = time.perf_counter()
            run.posted += [run.bus.post(Ticked(number)) for number in range(entries)]
            rate = entries / (time.perf_counter() - start)
            if delivering:
                run.wait()
            run.verify(delivered=delivering)
        yield Measurement("post", target.name, metric, rate, "entries/s", {"entries": entries})


def post_many(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Post events in batches of 100, one commit a batch."""
    entries = sizes.entries(100_000, POST_MANY)
    with run_on(target) as run:
        run.load(POST_MANY)
        start = time.perf_counter()
        for first in range(0, entries, POST_MANY):
            run.posted += run.bus.post_many([Ticked(number) for number in range(first, first + POST_MANY)])
        rate = (len(run.posted) - POST_MANY) / (time.perf_counter() - start)
        run.verify(delivered=False)
    settings = {"entries": len(run.posted) - POST_MANY, "batch": POST_MANY}
    yield Measurement("post-many", target.name, "post_many rate", rate, "entries/s", settings)


def _drain(target: Target, entries: int, config: BusConfig | None = None) -> float:
    with run_on(target, config) as run:
        run.load(entries)
        start = time.perf_counter()
        run.start()
        run.wait()
        rate = entries / (time.perf_counter() - start)
        run.verify()
    return rate


def drain(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Handle a backlog that was posted beforehand: one node, a handler that does nothing."""
    entries = sizes.entries(200_000)
    rate = _drain(target, entries)
    yield Measurement("drain", target.name, "drain rate", rate, "entries/s", {"entries": entries})


def through(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Post by post_many(100) and handle at once, in one process."""
    entries = sizes.entries(100_000, POST_MANY)
    with run_on(target) as run:
        run.start()
        start = time.perf_counter()
        for first in range(0, entries, POST_MANY):
            run.posted += run.bus.post_many([Ticked(number) for number in range(first, first + POST_MANY)])
        run.wait()
        rate = len(run.posted) / (time.perf_counter() - start)
        run.verify()
    settings = {"entries": len(run.posted), "batch": POST_MANY}
    yield Measurement("through", target.name, "posted and handled", rate, "entries/s", settings)


class _Timed(Metrics):
    """Metrics that also note when an entry's outcome was committed."""

    def __init__(self) -> None:
        super().__init__("benchmark", CollectorRegistry())
        self.written_at: dict[int, float] = {}

    def finished(self, batch: Sequence[Outcome], lost: set[int]) -> None:
        """See `Metrics`."""
        self.written_at.update(
            dict.fromkeys((outcome.entry.record_id for outcome in batch), time.perf_counter())
        )


class _Latencies:
    """When entries of a run committed, started and ended, while it posts at a steady rate.

    A commit has returned when the posting thread gives its connection back to the pool.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._committed_at: dict[int, float] = {}
        self._started_at: dict[int, float] = {}
        self._ids: dict[int, int] = {}
        self._posting = threading.local()
        self._metrics = run.bus.engine.lifecycle.finisher.metrics = _Timed()
        listen(run.bus.engine.database.engine, "checkin", self._returned)

    def _returned(self, *_connection: Any) -> None:
        number = getattr(self._posting, "number", None)
        if number is not None:
            self._committed_at[number] = time.perf_counter()

    def handle(self, event: Ticked) -> None:
        """The handler."""
        self._started_at[event.number] = time.perf_counter()
        self._run.handle(event)

    def post(self, entries: int, rate: float) -> float:
        """Post `entries`, each at its planned time however long the ones before took; the rate that was achieved."""
        run, begin = self._run, time.perf_counter()
        for number in range(entries):
            if (left := begin + number / rate - time.perf_counter()) > 0:
                time.sleep(left)
            self._posting.number = number
            self._ids[number] = run.bus.post(Ticked(number))
        self._posting.number = None
        run.posted += self._ids.values()
        return entries / (time.perf_counter() - begin)

    def to_start(self) -> list[float]:
        """Seconds from commit to start; 0 where the handler was faster than the commit's caller."""
        return [max(0.0, self._started_at[number] - at) for number, at in self._committed_at.items()]

    def to_outcome(self) -> list[float]:
        """Seconds from commit to committed outcome."""
        written_at = self._metrics.written_at
        return [max(0.0, written_at[self._ids[number]] - at) for number, at in self._committed_at.items()]


@contextmanager
def _latencies_on(target: Target) -> Iterator[tuple[Run, _Latencies]]:
    with run_on(target) as run:
        latencies = _Latencies(run)
        run.start(latencies.handle)
        yield run, latencies


def latency(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """From the commit's return to the handler's start, same process, at steady rates."""
    for rate in (100, 500):
        entries = sizes.entries(rate * 30)
        with _latencies_on(target) as (run, latencies):
            achieved = latencies.post(entries, rate)
            run.wait()
            run.verify()
        settings = {"entries": entries, "rate": rate, "achieved_rate": round(achieved, 1)}
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            value = percentile(latencies.to_start(), share) * 1e3
            yield Measurement(
                "latency", target.name, f"commit to start, {name} at {rate}/s", value, "ms", settings
            )


CLAIM_SIZES = (10, 100, 500)


def claim_batch(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Drain with max_entries_claimed 10 (Kill Bill's default), 100 and 500; alternating runs, medians."""
    entries = sizes.entries(50_000)
    rates = defaultdict[int, list[float]](list)
    for _ in range(sizes.rounds):
        for size in CLAIM_SIZES:
            rates[size].append(_drain(target, entries, BusConfig(max_entries_claimed=size)))
    base = statistics.median(rates[CLAIM_SIZES[0]])
    for size in CLAIM_SIZES:
        median = statistics.median(rates[size])
        settings = {
            "entries": entries,
            "rounds": sizes.rounds,
            "max_entries_claimed": size,
            "rates": rates[size],
        }
        name = f"max_entries_claimed={size}"
        yield Measurement("claim-batch", target.name, f"drain rate, {name}", median, "entries/s", settings)
        yield Measurement("claim-batch", target.name, f"ratio to 10, {name}", median / base, "x", settings)


def truncate(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Delivery at a steady rate, without and with truncate_history of the whole table at every tenth of a second."""
    rate, backlog = 100, sizes.entries(100_000)
    entries = sizes.entries(rate * 30, 50)
    for truncating in (False, True):
        with _latencies_on(target) as (run, latencies):
            run.load(backlog)
            run.wait()
            with _truncating(run, active=truncating) as removed:
                latencies.post(entries, rate)
            run.wait()
            run.verify(truncated=sum(removed))
        settings = {"entries": entries, "rate": rate, "history_rows": backlog, "removed": removed}
        when = "while truncating" if truncating else "otherwise"
        for what, values in (("start", latencies.to_start()), ("outcome", latencies.to_outcome())):
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                metric, value = f"commit to {what}, {name} {when}", percentile(values, share) * 1e3
                yield Measurement("truncate", target.name, metric, value, "ms", settings)


@contextmanager
def _truncating(run: Run, *, active: bool) -> Iterator[list[int]]:
    """Truncate the history again and again while the block runs, at least once; the rows removed each time."""
    removed: list[int] = []
    if not active:
        yield removed
        return
    done = threading.Event()

    def work() -> None:
        while not done.wait(TRUNCATE_PAUSE_SECONDS) or not removed:
            removed.append(run.bus.truncate_history())

    thread = threading.Thread(target=work, name="truncate")
    thread.start()
    try:
        yield removed
    finally:
        done.set()
        thread.join()


Scenario = Callable[[Target, Sizes], Iterator[Measurement]]
SCENARIOS: dict[str, Scenario] = {
    "post": post,
    "post-many": post_many,
    "drain": drain,
    "through": through,
    "latency": latency,
    "claim-batch": claim_batch,
    "truncate": truncate,
}
