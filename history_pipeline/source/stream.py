"""Streaming reads: history in the order in which entries ended, each row once.

Rows that are committed late are among them: see `stream_plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from history_pipeline.rows.schema import arrow_schema
from history_pipeline.source.options import StreamOptions
from history_pipeline.source.pages import rows_of_ids
from history_pipeline.source.position import Position
from history_pipeline.source.reader import table_of
from history_pipeline.source.stream_plan import EndedEntries, StreamPlan, ended_within
from sql.database import Database

T = TypeVar("T")

PLANNING_SECONDS = 600.0
"""Time limit of a statement that reads many rows, as those of a first batch do."""


class HistoryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the columns of `schema`.

    One object plans all batches of a query; tasks read in other processes.
    """

    def __init__(self, schema: StructType, options: StreamOptions) -> None:
        self.schema = schema
        self.options = options
        self._only_until: datetime | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Before the first row, or after the option `after`."""
        return Position.start(self.options.after).offset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
        """Return the approximate rows of a batch.

        Rows that ended in the same microsecond stay together.
        """
        return ReadMaxRows(self.options.max_rows_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Set the end of this query: what is settled now."""
        self._only_until = self._planning(
            lambda plan: plan.frontier(Position.start(self.options.after))
        )

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """The position after the next batch; `start` if there is nothing to hand over."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None

        def plan_next(plan: StreamPlan) -> Position:
            plan.check_kept(Position.read(start))
            return plan.next(Position.read(start), self._only_until, most)

        return self._planning(plan_next).offset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[EndedEntries]:
        """The rows from one position to the next, in parts."""
        if start == end:
            return []

        def plan_parts(plan: StreamPlan) -> list[EndedEntries]:
            parts = plan.parts(Position.read(start), Position.read(end))
            plan.check_kept(
                Position.read(start)
            )  # afterwards: what was deleted meanwhile may be missing in them
            return parts

        return self._planning(plan_parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part."""
        assert isinstance(partition, EndedEntries)  # noqa: S101 -- one of `partitions`
        database = Database(self.options.url)
        try:
            table = table_of(self.options.table)
            yield from rows_of_ids(
                database,
                table,
                arrow_schema(self.schema),
                partition.ids,
                where=[ended_within(table, partition.after, partition.until)],
            )
        finally:
            database.close()

    def _planning(self, work: Callable[[StreamPlan], T]) -> T:
        database = _reading_widely(
            Database(self.options.url, statement_timeout_seconds=PLANNING_SECONDS)
        )
        try:
            return work(StreamPlan(database, self.options))
        finally:
            database.close()


def _reading_widely(database: Database) -> Database:
    """Let its connections use the index on dates. Those of a node are kept from it for claims."""
    for engine in database.engines:
        database.dialect.read_widely(engine)
    return database
