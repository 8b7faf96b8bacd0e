"""The time from an entry's commit, or its date, to its start; also during a truncation."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry
from sqlalchemy import URL

from benchmarks.databases import Target
from benchmarks.measurement import Measurement, percentile
from benchmarks.nodes import bus_process
from benchmarks.workload import (
    COMPLETION_SECONDS,
    WARM_UP,
    Run,
    Sizes,
    Ticked,
    VerificationError,
    paced,
    run_on,
    verify_counts,
)
from notifications.service import NotificationService
from queue_core.metrics import Metrics
from queue_core.model.config import BusConfig
from queue_core.model.mode import Mode
from queue_core.model.outcome import Outcome
from queue_core.model.posting import Posting

T = TypeVar("T")

RATES = (100, 500)
TRUNCATE_PAUSE_SECONDS = 0.1
LEAD_SECONDS = 1.0
"""From the posting of notifications to the first one's date."""


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

    A commit has returned when the database's `write` or `insert_autocommit` has.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.committed_at: dict[int, float] = {}
        self._started_at: dict[int, float] = {}
        self._ids: dict[int, int] = {}
        self._posting = threading.local()
        self._metrics = run.bus._engine.lifecycle.finisher.metrics = _Timed()
        database = run.bus._engine.database
        vars(database).update(
            write=self._timed(database.write),
            insert_autocommit=self._timed(database.insert_autocommit),
        )

    def _timed(self, write: Callable[..., T]) -> Callable[..., T]:
        def write_timed(*given: Any) -> T:
            result = write(*given)
            number = getattr(self._posting, "number", None)
            if number is not None:
                self.committed_at[number] = time.perf_counter()
            return result

        return write_timed

    def handle(self, event: Ticked) -> None:
        """The handler."""
        self._started_at[event.number] = time.perf_counter()
        self._run.handle(event)

    def post(self, entries: int, rate: float) -> float:
        """Post `entries`, each at its planned time however long the ones before took.

        Returns the rate that was achieved.
        """
        run, begin = self._run, time.perf_counter()
        for number in paced(entries, rate):
            self._posting.number = number
            self._ids[number] = run.bus.post(Ticked(number))
        self._posting.number = None
        run.posted += self._ids.values()
        return entries / (time.perf_counter() - begin)

    def to_start(self) -> list[float]:
        """Seconds from commit to start; 0 where the handler was faster than the commit's caller."""
        return [max(0.0, self._started_at[number] - at) for number, at in self.committed_at.items()]

    def to_outcome(self) -> list[float]:
        """Seconds from commit to committed outcome."""
        written_at = self._metrics.written_at
        return [
            max(0.0, written_at[self._ids[number]] - at) for number, at in self.committed_at.items()
        ]


@contextmanager
def _latencies_on(target: Target) -> Iterator[tuple[Run, _Latencies]]:
    with run_on(target) as run:
        latencies = _Latencies(run)
        run.start(latencies.handle)
        yield run, latencies


def _percentiles(
    scenario: str,
    target: Target,
    metric: str,
    rounds: Sequence[Sequence[float]],
    settings: dict[str, Any],
) -> Iterator[Measurement]:
    """Of the percentiles of the rounds, the medians."""
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        found = [percentile(seconds, share) * 1e3 for seconds in rounds]
        settings = {**settings, "rounds": len(rounds), "milliseconds": found}
        yield Measurement(
            scenario, target.name, metric.format(name), statistics.median(found), "ms", settings
        )


def _entries_of_a_round(sizes: Sizes, rate: int) -> int:
    """All rounds together post for 30 seconds."""
    return sizes.entries(rate * 30 // sizes.rounds)


def latency(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """From the commit's return to the handler's start, same process, at steady rates."""
    for rate in RATES:
        entries = _entries_of_a_round(sizes, rate)
        rounds, achieved = list[list[float]](), list[float]()
        for _ in range(sizes.rounds):
            with _latencies_on(target) as (run, latencies):
                achieved.append(round(latencies.post(entries, rate), 1))
                run.wait()
                run.verify()
            rounds.append(latencies.to_start())
        settings = {"entries": entries, "rate": rate, "achieved_rates": achieved}
        yield from _percentiles(
            "latency", target, f"commit to start, {{}} at {rate}/s", rounds, settings
        )


def latency_elsewhere(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Measure from the commit here to the handler's start in another process, at steady rates.

    The mode is POLLING.
    """
    for rate in RATES:
        entries = _entries_of_a_round(sizes, rate)
        rounds, achieved = list[list[float]](), list[float]()
        for _ in range(sizes.rounds):
            with run_on(target, BusConfig(mode=Mode.POLLING)) as run:
                url = run.bus._engine.database.url
                with bus_process(url, Mode.POLLING, timed=True) as node:
                    node.ask("start")
                    # After a quiet time, a node that nobody tells of entries finds the first by its
                    # next poll.
                    run.load(WARM_UP)
                    node.wait_until_handled(WARM_UP)
                    latencies = _Latencies(run)
                    achieved.append(round(latencies.post(entries, rate), 1))
                    node.wait_until_handled(WARM_UP + entries)
                    started = {int(number): at for number, at in node.ask("times").items()}
                    node.ask("stop")
                run.verify()
            # Linux's clock for intervals is one for all processes.
            rounds.append(
                [max(0.0, started[number] - at) for number, at in latencies.committed_at.items()]
            )
        settings = {
            "entries": entries,
            "rate": rate,
            "achieved_rates": achieved,
            "mode": Mode.POLLING.value,
        }
        metric = f"commit to start elsewhere, {{}} at {rate}/s"
        yield from _percentiles("latency-elsewhere", target, metric, rounds, settings)


def punctuality(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Measure the handler's start minus the notification's date, by the machine's clock.

    There are 100 notifications a second.
    """
    rate = 100
    entries = _entries_of_a_round(sizes, rate)
    rounds = [_lateness(target, entries, rate) for _ in range(sizes.rounds)]
    settings = {"entries": entries, "rate": rate}
    yield from _percentiles(
        "punctuality", target, f"start minus date, {{}} at {rate}/s", rounds, settings
    )
    earliest = min(min(late) for late in rounds) * 1e3
    yield Measurement(
        "punctuality", target.name, "earliest start minus date", earliest, "ms", settings
    )


def _lateness(target: Target, entries: int, rate: int) -> list[float]:
    """Seconds from the date of each of `entries` notifications to its handler's start."""
    late: list[float] = []
    done = threading.Event()

    def handle(event: Ticked) -> None:
        late.append((datetime.now(UTC) - dates[event.number]).total_seconds())
        if len(late) >= entries:
            done.set()

    with target.fresh() as url, _service(url) as service:
        queue = service.create_queue("benchmark", "ticks", handle, event_types=[Ticked])
        service.start()
        first = datetime.now(UTC) + timedelta(seconds=LEAD_SECONDS)
        dates = [first + timedelta(seconds=number / rate) for number in range(entries)]
        queue.schedule_many(
            Posting(event=Ticked(number), at=date) for number, date in enumerate(dates)
        )
        if datetime.now(UTC) >= first:
            raise VerificationError(
                f"{entries} notifications were not posted before the first one's date"
            )
        if not done.wait(LEAD_SECONDS + entries / rate + COMPLETION_SECONDS):
            raise VerificationError(f"{len(late)} of {entries} notifications handled")
        service.stop()
        verify_counts(url, service.config.table, waiting=0, ended=entries)
    return late


@contextmanager
def _service(url: URL) -> Iterator[NotificationService]:
    service = NotificationService(url, metrics_registry=CollectorRegistry())
    try:
        yield service
    finally:
        service.close()


def truncate(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Measure delivery at a steady rate, without and with truncations of the whole history.

    They follow each other by a tenth of a second.
    """
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
        for what, seconds in (("start", latencies.to_start()), ("outcome", latencies.to_outcome())):
            yield from _percentiles(
                "truncate", target, f"commit to {what}, {{}} {when}", [seconds], settings
            )


@contextmanager
def _truncating(run: Run, *, active: bool) -> Iterator[list[int]]:
    """Truncate the history again and again while the block runs, at least once.

    The value has the rows that were removed each time.
    """
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
