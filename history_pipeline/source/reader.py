"""Batch reads: a table by ranges of ids, a task of Spark each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from sqlalchemy import ColumnElement, Connection, Table, func, select

from history_pipeline.rows.kind import kind_of
from history_pipeline.rows.schema import arrow_schema
from history_pipeline.source.options import ReadOptions
from history_pipeline.source.pages import pages
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
            first, last = database.fetch(self._bounds)
        finally:
            database.close()
        return ranges(first, last, self.options.ids_per_partition, self.options.max_partitions)

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

    def _bounds(self, connection: Connection) -> tuple[int, int]:
        """The smallest and the largest id within those asked for; (1, 0) if there is none."""
        table = table_of(self.options.table)
        record_id = table.c.record_id
        statement = select(func.min(record_id), func.max(record_id))
        if self.options.first_id is not None:
            statement = statement.where(record_id >= self.options.first_id)
        if self.options.last_id is not None:
            statement = statement.where(record_id <= self.options.last_id)
        first, last = connection.execute(statement).one()
        return (1, 0) if first is None else (first, last)


def table_of(name: str) -> Table:
    """The definition of a main or history table, by its name."""
    return kind_of(name).table(name)


def ranges(first: int, last: int, width: int, most: int) -> list[IdRange]:
    """Split the ids from `first` to `last` into ranges of `width` ids.

    The ranges are wider if there would be more than `most`: a task costs some milliseconds even if
    it reads nothing.
    """
    width = max(width, (last - first) // most + 1)
    return [IdRange(low, min(low + width - 1, last)) for low in range(first, last + 1, width)] or [
        IdRange(first, last)
    ]
