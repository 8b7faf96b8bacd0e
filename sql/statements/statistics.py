"""Statistics of ended entries: counts by state, retries, and processing times.

They lock nothing, and read all history of their span once or twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Integer,
    Row,
    Select,
    Table,
    and_,
    bindparam,
    case,
    cast,
    func,
    or_,
    select,
)

from sql.statements.base import FAILED, PROCESSED, PairStatements
from sql.types import UtcSince, microseconds_between

BUCKETS_PER_E = 100
"""Values of one bucket differ by one percent at most."""

Ranks = Callable[[int], Iterable[int]]
"""The ranks, from 0, that are wanted of a number of values."""


@dataclass(frozen=True)
class Span:
    """The rows that statistics are of.

    `since` and `until` bound `finished_date`, or `created_date` of live entries, both included;
    None: no bound, or every queue.
    """

    since: datetime | None = None
    until: datetime | None = None
    queue_name: str | None = None


@dataclass(frozen=True)
class Times:
    """Processing times of one queue in microseconds; `at` holds those at the wanted ranks."""

    count: int
    total: int
    least: int
    most: int
    at: dict[int, int]


class Statistics(PairStatements):
    """Statistics of one pair of tables, by queue."""

    def state_counts(self, connection: Connection, span: Span) -> list[Row[Any]]:
        """Numbers of entries by queue and state, live ones and ended ones.

        Columns: queue_name, processing_state, entries.
        """
        return [
            row
            for table, date in ((self.main, "created_date"), (self.past, "finished_date"))
            for row in connection.execute(
                _within(
                    select(
                        table.c.queue_name,
                        table.c.processing_state,
                        func.count().label("entries"),
                    ),
                    table,
                    span,
                    date,
                ).group_by(table.c.queue_name, table.c.processing_state)
            )
        ]

    def retry_counts(self, connection: Connection, span: Span) -> list[Row[Any]]:
        """Numbers of retries by queue.

        Columns: queue_name; ok: PROCESSED without a failed run; retries: runs after a failed one.
        """
        past = self.past
        state, errors = past.c.processing_state, past.c.error_count
        statement = select(
            past.c.queue_name,
            func.sum(case((and_(state == PROCESSED, errors == 0), 1), else_=0)).label("ok"),
            # A failure that was final had no run after it.
            func.sum(
                case(
                    (state == PROCESSED, errors),
                    (and_(state == FAILED, errors > 1), errors - 1),
                    else_=0,
                )
            ).label("retries"),
        )
        return list(connection.execute(_within(statement, past, span).group_by(past.c.queue_name)))

    def processing_times(
        self, connection: Connection, span: Span, ranks: Ranks
    ) -> dict[str, Times]:
        """Processing times by queue, of rows that were started.

        No database sorts a million values within a second or two. So one statement counts the
        values of each bucket, and another those of the few buckets in which wanted ranks lie.
        """
        timed = self._timed(span).subquery("timed")
        bucket = _bucket(timed.c.micros).label("bucket")
        buckets: dict[str, list[Row[Any]]] = {}
        for row in connection.execute(
            select(
                timed.c.queue_name,
                bucket,
                func.count().label("entries"),
                func.sum(timed.c.micros).label("total"),
                func.min(timed.c.micros).label("least"),
                func.max(timed.c.micros).label("most"),
            ).group_by(timed.c.queue_name, bucket)
        ):
            buckets.setdefault(row.queue_name, []).append(row)
        found: dict[str, Times] = {}
        sought: list[tuple[str, Row[Any], int, list[int]]] = []
        for name, rows in buckets.items():
            rows.sort(key=lambda row: int(row.least))
            count = sum(row.entries for row in rows)
            wanted, first = sorted(set(ranks(count))), 0
            for row in rows:
                inside = [rank for rank in wanted if first <= rank < first + row.entries]
                if inside:
                    sought.append((name, row, first, inside))
                first += row.entries
            total = sum(int(row.total) for row in rows)
            least, most = int(rows[0].least), int(rows[-1].most)
            found[name] = Times(count, total, least, most, {})
        if not sought:
            return found
        values: dict[str, list[tuple[int, int]]] = {}
        for value in connection.execute(
            select(timed.c.queue_name, timed.c.micros, func.count().label("entries"))
            .where(
                or_(
                    *(
                        and_(
                            timed.c.queue_name == name,
                            timed.c.micros.between(int(row.least), int(row.most)),
                        )
                        for name, row, _, _ in sought
                    )
                )
            )
            .group_by(timed.c.queue_name, timed.c.micros)
        ):
            values.setdefault(value.queue_name, []).append((int(value.micros), value.entries))
        for name, row, first, inside in sought:
            here = sorted(
                one for one in values.get(name, ()) if int(row.least) <= one[0] <= int(row.most)
            )
            for rank in inside:
                found[name].at[rank] = _at(here, rank - first, otherwise=int(row.most))
        return found

    def _timed(self, span: Span) -> Select[Any]:
        """Columns queue_name and micros of the rows that were started."""
        past = self.past
        micros = microseconds_between(past.c.started_date, past.c.finished_date)
        statement = select(past.c.queue_name, micros.label("micros"))
        return _within(statement, past, span).where(past.c.started_date.is_not(None))


def _bucket(micros: ColumnElement[int]) -> ColumnElement[int]:
    """A number that never falls as `micros` rises; all that are not positive share one."""
    logarithm = func.ln(cast(micros, Double))
    return case((micros > 0, cast(func.floor(logarithm * BUCKETS_PER_E), Integer)), else_=-1)


def _at(values: list[tuple[int, int]], place: int, *, otherwise: int) -> int:
    """The value at a place, counted from 0, of values with their numbers in order.

    `otherwise`: rows were deleted since their bucket was counted.
    """
    for value, entries in values:
        place -= entries
        if place < 0:
            return value
    return otherwise


def _within(
    statement: Select[Any], table: Table, span: Span, date: str = "finished_date"
) -> Select[Any]:
    column = table.c[date]
    if span.since is not None:
        statement = statement.where(column >= bindparam(None, span.since, type_=UtcSince()))
    if span.until is not None:
        statement = statement.where(column <= span.until)
    if span.queue_name is not None:
        statement = statement.where(table.c.queue_name == span.queue_name)
    return statement
