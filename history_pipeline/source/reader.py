"""Batch reads: a table by ranges of ids, a task of Spark each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from sqlalchemy import ColumnElement, Connection, Table, func, select

from history_pipeline.rows.kind import kind_of
from history_pipeline.rows.schema import arrow_schema
from history_pipeline.source.options import ReadOptions
from history_pipeline.source.pages import pages
from history_pipeline.source.stretches import Stretch, stretches
from sql.database import Database


@dataclass
class IdRange(InputPartition):
    """Ids from `first` to `last`, both included."""

    first: int
    last: int


class HistoryReader(DataSourceReader):
    """Reads the columns of `schema`.

    Planning and reading run in other processes, which open their connections.
    """

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self.schema = schema
        self.options = options

    def partitions(self) -> list[IdRange]:
        """Ranges of ids that hold all rows committed by now.

        There is one, which holds none, if there are no rows.
        """
        database = Database(self.options.url)
        try:
            found = database.fetch(self._stretches)
        finally:
            database.close()
        return ranges(found, self.options.ids_per_partition, self.options.max_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range, in the order of their ids."""
        assert isinstance(partition, IdRange)  # noqa: S101 -- one of `partitions`
        database = Database(self.options.url)
        try:
            table = table_of(self.options.table)
            schema = arrow_schema(self.schema)
            yield from pages(
                database,
                table,
                schema,
                first_id=partition.first,
                last_id=partition.last,
                where=self._where(table),
            )
        finally:
            database.close()

    def _where(self, table: Table) -> list[ColumnElement[bool]]:
        options, found = self.options, list[ColumnElement[bool]]()
        if options.since is not None:
            found.append(table.c.finished_date >= options.since)
        if options.until is not None:
            found.append(table.c.finished_date < options.until)
        if options.states is not None:
            found.append(table.c.processing_state.in_(options.states))
        return found

    def _stretches(self, connection: Connection) -> list[Stretch]:
        """Where the rows lie whose ids are asked for."""
        table = table_of(self.options.table)
        record_id = table.c.record_id
        statement = select(func.min(record_id), func.max(record_id))
        if self.options.first_id is not None:
            statement = statement.where(record_id >= self.options.first_id)
        if self.options.last_id is not None:
            statement = statement.where(record_id <= self.options.last_id)
        first, last = connection.execute(statement).one()
        if first is None:
            return []
        width = self.options.ids_per_partition
        return stretches(connection, record_id, first=first, last=last, width=width)


def table_of(name: str) -> Table:
    """The definition of a main or history table, by its name."""
    return kind_of(name).table(name)


def ranges(found: Sequence[Stretch], width: int, most: int) -> list[IdRange]:
    """Split the ids from the first of some stretches to the last into ranges of `width` rows.

    Ids in gaps are part of a range, too. There are more rows in each if there would be more ranges
    than `most`: a task costs some milliseconds even if it reads nothing.
    """
    if not found:
        return [IdRange(1, 0)]
    width = max(width, -(-sum(one.rows for one in found) // most))
    starts, before = list[int](), 0
    for one in found:
        ids = one.last - one.first + 1
        # A range begins at each multiple of the width, counted in rows from the first one.
        places = range(-(-before // width) * width, before + one.rows, width)
        starts += [one.first + (place - before) * ids // one.rows for place in places]
        before += one.rows
    ends = [start - 1 for start in starts[1:]]
    return [IdRange(*ids) for ids in zip(starts, [*ends, found[-1].last], strict=True)]
