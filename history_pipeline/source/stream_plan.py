"""The plan of a stream: which rows may be handed over, and in which parts.

A row's `finished_date` is bound before its transaction commits, so that rows become visible in
another order than their dates. Therefore only dates are handed over to which no transaction can add
a row any more:

1. rows that ended `lag_seconds` ago or earlier by the database's clock. A row is inserted at most
   that much later than its date: a statement's time twice. Clocks differ by less.
2. once every transaction that had inserted into history by then has ended (see `sql.settling`).
   While one stays open, the stream waits; it hands over nothing in its stead.
3. The exception to 1 are outcomes that a node keeps while the database is out of reach. Their
   entries are seen in the main table as running: the position names them, and their rows are handed
   over when they come, whatever their date.

A batch of rows is thus the same whenever it is read again, unless history is truncated meanwhile.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from sqlalchemy import ColumnElement, Select, Table, and_, func, literal, select

from history_pipeline.errors import StreamLossError
from history_pipeline.source.batches import record_batch
from history_pipeline.source.options import StreamOptions
from history_pipeline.source.position import Position
from history_pipeline.source.reader import table_of
from queue_core.runtime.log import get_logger
from sql.database import Database
from sql.families import ARCHIVES
from sql.settling import Ended
from sql.statements.base import IN_PROCESSING, batches

_IDS = pa.schema([("record_id", pa.int64())])
_log = get_logger(__name__)


@dataclass
class EndedEntries(InputPartition):
    """Ids whose rows, as far as they ended after `after` and by `until`, one task reads."""

    ids: array[int]
    after: datetime
    until: datetime


class StreamPlan:
    """The plan of the next batch of a stream."""

    def __init__(self, database: Database, options: StreamOptions) -> None:
        self._database = database
        self._options = options
        self._history = table_of(options.table)
        self._main = table_of(options.table.removesuffix("_history"))

    def check_kept(self, start: Position) -> None:
        """Raises StreamLossError if rows that ended after `start` were archived and deleted."""
        if not self._options.fail_on_data_loss:
            return
        archives = self._database.dialect.statements_for(ARCHIVES)()
        lost = self._database.fetch(
            lambda connection: archives.deleted_after(connection, self._main.name, start.finished)
        )
        if lost is not None:
            raise StreamLossError(
                f"{self._history.name}: run {lost.run} has moved entries to the archive "
                f"{lost.target} that this stream has not handed over (it stands at "
                f"{start.finished.isoformat()}). Nothing was handed over. Read the missing entries "
                "from the archive, then start the stream with fail_on_data_loss=false or, without "
                "a checkpoint, after a date. To avoid it, archive only entries that the stream "
                "has passed: --before.",
                run=lost.run,
            )

    def frontier(self, start: Position) -> datetime:
        """Return the date up to which no row can be added any more.

        It is `start`'s date while a writer's transaction stays open.
        """
        now = self._database.fetch(self._database.dialect.database_now)
        candidate = now - timedelta(seconds=self._options.lag_seconds)
        if candidate <= start.finished:
            return start.finished
        wait = self._options.settle_seconds
        if self._has_settled(start.finished, candidate, wait):
            return candidate
        _log.warning("stream_held_back", table=self._history.name, waited_seconds=wait)
        return start.finished

    def _has_settled(self, after: datetime, until: datetime, seconds: float) -> bool:
        """Whether, in time, all rows have settled that were inserted by now.

        It is asked of those that ended in (`after`, `until`].
        """
        ended = Ended(self._history, after, until, deadline=time.monotonic() + seconds)
        return self._database.dialect.settled(self._database, ended)

    def next(self, start: Position, only_until: datetime | None, most: int | None) -> Position:
        """The position after the next batch.

        Running entries are looked up before the rows: they become rows.
        """
        frontier = self.frontier(start) if only_until is None else max(only_until, start.finished)
        running = self._running(frontier)
        late = sorted(self._ended_of(start.open, until=start.finished))
        until = self._limited(start.finished, frontier, most)
        if not late and not self._count(start.finished, until, most=0):
            return start
        return Position(until, open=tuple(sorted(running - set(late))), late=tuple(late))

    def parts(self, start: Position, end: Position) -> list[EndedEntries]:
        """Rows of the dates between two positions, and the late ones.

        Entries that are still open at the second position are left out.
        """
        statement = select(self._history.c.record_id).where(
            ended_within(self._history, start.finished, end.finished)
        )
        bulk = self._database.dialect.bulk
        page = self._database.fetch(
            lambda connection: record_batch(bulk, connection, statement, _IDS)
        )
        still_open, late = set(end.open), set(end.late)
        ids = sorted(set(page.column(0).to_pylist()) - still_open)
        beginning = Position.start().finished
        return [
            *self._split(ids, start.finished, end.finished),
            *self._split(sorted(late), beginning, start.finished),
        ]

    def _split(self, ids: Sequence[int], after: datetime, until: datetime) -> list[EndedEntries]:
        width = self._options.rows_per_partition
        return [
            EndedEntries(array("q", ids[place : place + width]), after, until)
            for place in range(0, len(ids), width)
        ]

    def _running(self, frontier: datetime) -> set[int]:
        """Entries whose rows may come with a date up to `frontier`.

        They run, and were due by then.
        """
        main = self._main
        statement = select(main.c.record_id).where(
            main.c.processing_state == IN_PROCESSING, main.c.effective_date <= frontier
        )
        return set(self._rows(statement))

    def _ended_of(self, ids: Sequence[int], until: datetime) -> set[int]:
        history, found = self._history, set[int]()
        for batch in batches(ids):
            chosen = history.c.record_id.in_(batch)
            statement = select(history.c.record_id).where(chosen, history.c.finished_date <= until)
            found |= set(self._rows(statement))
        return found

    def _rows(self, statement: Select[Any]) -> list[int]:
        return self._database.fetch(
            lambda connection: list(connection.execute(statement).scalars())
        )

    def _limited(self, after: datetime, until: datetime, most: int | None) -> datetime:
        """A date up to which there are at most `most` rows.

        There are at least half as many, if there are more.
        """
        if most is None or self._count(after, until, most) <= most:
            return until
        low, high = self._first(after, until) - timedelta(microseconds=1), until
        while high - low > timedelta(microseconds=1):
            middle = low + (high - low) / 2
            rows = self._count(after, middle, most)
            if most // 2 <= rows <= most:
                return middle
            low, high = (low, middle) if rows > most else (middle, high)
        return high

    def _first(self, after: datetime, until: datetime) -> datetime:
        statement = select(func.min(self._history.c.finished_date)).where(
            ended_within(self._history, after, until)
        )
        found: datetime = self._database.fetch(
            lambda connection: connection.execute(statement).scalar_one()
        )
        return found

    def _count(self, after: datetime, until: datetime, most: int) -> int:
        """How many rows ended in a range of dates; `most` + 1 if there are more, however many."""
        rows = (
            select(literal(1))
            .where(ended_within(self._history, after, until))
            .limit(most + 1)
            .subquery()
        )
        statement = select(func.count()).select_from(rows)
        return self._database.fetch(
            lambda connection: int(connection.execute(statement).scalar_one())
        )


def ended_within(table: Table, after: datetime, until: datetime) -> ColumnElement[bool]:
    """The condition that a row ended after one date, and by the other."""
    return and_(table.c.finished_date > after, table.c.finished_date <= until)
