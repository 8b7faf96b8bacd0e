"""Statistics of queues: entries by state, retries and processing times.

`docs/reference/statistics.md` defines each figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from queue_core.model.states import State
from queue_core.runtime.arguments import not_allowed, of_kind
from queue_core.runtime.callers import CallersConnection
from queue_core.runtime.clock import in_utc
from queue_core.storage.arguments import storable_name
from queue_core.storage.store import Store
from sql.statements.statistics import Span, Times
from sql.tables import QUEUE_NAME_LENGTH

DEFAULT_AGE = timedelta(days=30)
SECOND = timedelta(seconds=1)
PERCENTS = (50, 90, 95, 99)


class QueueStats(msgspec.Struct, kw_only=True, frozen=True):
    """The numbers of entries of one queue in each state, live or ended.

    Attributes:
        table: The main table.
        queue_name: The bus, or `service:queue`.
        available: Live entries that may be claimed once they are due, posted within the age.
        waiting: Live entries that wait for others, posted within the age.
        in_processing: Live entries that a node runs, posted within the age.
        processed: Entries that ended PROCESSED within the age.
        failed: Entries that ended FAILED within the age.
        removed: Entries that ended REMOVED within the age.
        reaped: Rows that ended REAPED within the age; their entries live on as copies.
    """

    table: str
    queue_name: str
    available: int = 0
    waiting: int = 0
    in_processing: int = 0
    processed: int = 0
    failed: int = 0
    removed: int = 0
    reaped: int = 0


class RetryStats(msgspec.Struct, kw_only=True, frozen=True):
    """The number of retries of one queue's entries, and their share.

    Attributes:
        table: The main table.
        queue_name: The bus, or `service:queue`.
        ok: Entries that ended PROCESSED without a failed run.
        retries: Runs after a failed one, of entries that ended PROCESSED or FAILED.
        percentage: 100 · `retries` / `ok`; None if `ok` is 0.
    """

    table: str
    queue_name: str
    ok: int
    retries: int
    percentage: float | None


class ProcessingTimeStats(msgspec.Struct, kw_only=True, frozen=True):
    """The durations of the last runs of one queue's entries, in the unit that was asked for.

    Attributes:
        table: The main table.
        queue_name: The bus, or `service:queue`.
        count: Rows of history that were timed.
        avg: The mean.
        min: The shortest time; negative if two clocks differed.
        max: The longest time.
        p50: The median.
        p90: The 90th percentile, exact, interpolated between two ranks.
        p95: Likewise the 95th.
        p99: Likewise the 99th.
    """

    table: str
    queue_name: str
    count: int
    avg: float
    min: float
    max: float
    p50: float
    p90: float
    p95: float
    p99: float


class StatsFilter:
    """The entries that statistics count.

    Raises InvalidPostError, ConfigurationError.
    """

    def __init__(
        self,
        *,
        age: timedelta | None = DEFAULT_AGE,
        queue_name: str | None = None,
        now: datetime | None = None,
    ) -> None:
        if age is not None:
            of_kind(age, timedelta, key="age")
            if age < timedelta(0):
                raise not_allowed("age", age, "a timedelta that is not negative, or None")
        self._age = age
        self._now = None if now is None else in_utc(now, key="now")
        self._queue_name = (
            None
            if queue_name is None
            else storable_name(queue_name, "queue_name", limit=QUEUE_NAME_LENGTH)
        )

    def span(self, store: Store) -> Span:
        """The rows of `store` that count."""
        since = None
        if self._age is not None:
            now = store.now() if self._now is None else self._now
            try:
                since = now - self._age
            except OverflowError:
                since = None  # before the year 1 nothing ended
        return Span(since, self._now, self._queue_name)


def queue_stats(
    store: Store, wanted: StatsFilter, connection: CallersConnection | None = None
) -> list[QueueStats]:
    """Entries by state, of each queue of the table that has any, by name."""
    table, span = store.config.table, wanted.span(store)
    counts: dict[str, dict[str, int]] = {}
    for row in store.read(
        connection, table, lambda inner: store.statements.state_counts(inner, span)
    ):
        if row.processing_state in State.__members__:  # else a row by hand
            counts.setdefault(row.queue_name, {})[row.processing_state.lower()] = row.entries
    return [
        QueueStats(table=table, queue_name=queue_name, **counts[queue_name])
        for queue_name in sorted(counts)
    ]


def retry_stats(
    store: Store, wanted: StatsFilter, connection: CallersConnection | None = None
) -> list[RetryStats]:
    """Retries of each queue of the table that ended an entry, by name."""
    table, span = store.config.table, wanted.span(store)
    rows = store.read(connection, table, lambda inner: store.statements.retry_counts(inner, span))
    return [
        RetryStats(
            table=table,
            queue_name=row.queue_name,
            ok=int(row.ok),
            retries=int(row.retries),
            percentage=100 * int(row.retries) / int(row.ok) if row.ok else None,
        )
        for row in sorted(rows, key=lambda row: str(row.queue_name))
    ]


def processing_time_stats(
    store: Store,
    wanted: StatsFilter,
    unit: timedelta = SECOND,
    connection: CallersConnection | None = None,
) -> list[ProcessingTimeStats]:
    """Processing times of each queue of the table that has any, by name."""
    of_kind(unit, timedelta, key="unit")
    if unit <= timedelta(0):
        raise not_allowed("unit", unit, "a positive timedelta, such as timedelta(milliseconds=1)")
    table, span = store.config.table, wanted.span(store)
    found = store.read(
        connection, table, lambda inner: store.statements.processing_times(inner, span, _ranks)
    )
    micros = unit // timedelta(microseconds=1)
    return [_stats(table, queue_name, found[queue_name], micros) for queue_name in sorted(found)]


def _ranks(count: int) -> Sequence[int]:
    """Those that the percentiles of `count` values lie between."""
    below = [(count - 1) * percent // 100 for percent in PERCENTS]
    return [rank for first in below for rank in (first, min(first + 1, count - 1))]


def _stats(table: str, queue_name: str, times: Times, unit: int) -> ProcessingTimeStats:
    def percentile(percent: int) -> float:
        below, share = divmod((times.count - 1) * percent, 100)
        above = min(below + 1, times.count - 1)
        # In whole numbers, so that it is rounded once.
        return (times.at[below] * (100 - share) + times.at[above] * share) / (100 * unit)

    return ProcessingTimeStats(
        table=table,
        queue_name=queue_name,
        count=times.count,
        avg=times.total / (times.count * unit),
        min=times.least / unit,
        max=times.most / unit,
        p50=percentile(50),
        p90=percentile(90),
        p95=percentile(95),
        p99=percentile(99),
    )
