"""Spark's data source `stickybus`: history as DataFrames."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from history_pipeline.errors import SourceOptionError
from history_pipeline.rows.kind import kind_of
from history_pipeline.rows.schema import spark_schema
from history_pipeline.source.options import ReadOptions, StreamOptions, WriteOptions
from history_pipeline.source.reader import HistoryReader
from history_pipeline.source.stream import HistoryStreamReader
from history_pipeline.source.writer import EventWriter
from queue_core.errors import ConfigurationError
from queue_core.model.states import States
from queue_core.runtime.arguments import not_allowed, of_kind
from queue_core.storage.arguments import as_integer
from queue_core.storage.filter import state_values

FORMAT = "stickybus"
"""The name in `spark.read.format`."""


class StickybusSource(DataSource):
    """The format `stickybus`."""

    @classmethod
    def name(cls) -> str:
        """The name in `spark.read.format`."""
        return FORMAT

    def schema(self) -> StructType:
        """All columns of the history table; `.schema()` chooses fewer."""
        return _schema(self.options.get("table", ReadOptions.table))

    def reader(self, schema: StructType) -> HistoryReader:
        """Reads the columns of `schema`."""
        return HistoryReader(schema, ReadOptions.read(self.options))

    def streamReader(self, schema: StructType) -> HistoryStreamReader:  # noqa: N802 -- Spark's name
        """Reads the columns of `schema` in the order in which entries ended."""
        return HistoryStreamReader(schema, StreamOptions.read(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> EventWriter:  # noqa: FBT001 -- Spark's signature
        """Posts rows as events, once per run. Raises SourceOptionError for any mode but append."""
        if overwrite:
            raise SourceOptionError(
                "events are posted, and overwrite nothing. Nothing was written; use "
                "mode('append').",
                key="mode",
            )
        return EventWriter(schema, WriteOptions.read(self.options))


def read_history(
    spark: SparkSession,
    url: str | URL,
    table: str = "bus_events_history",
    *,
    first_id: int | None = None,
    last_id: int | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    states: States | None = None,
    columns: Sequence[str] | None = None,
    ids_per_partition: int | None = None,
    max_partitions: int | None = None,
) -> DataFrame:
    """Return the rows of a table of entries, or of the history of tasks, as a DataFrame.

    Args:
        spark: A session, as `open_session` returns it.
        url: The database.
        table: A history table, `work_task_history` included; or a main table, whose columns
            `finished_date`, `started_date` and `last_error` are NULL.
        first_id: The lowest id to read, included. The default is the lowest of all.
        last_id: The highest id to read, included. The default is the highest of all.
        since: Leave out rows that ended earlier: an aware date, of a history table only.
        until: Leave out rows that ended then or later, likewise.
        states: Leave out entries in other states. The default is all states. Tasks have none.
        columns: The columns to read. The default is all.
        ids_per_partition: The ids that one task reads. The default is 100,000.
        max_partitions: Most tasks, and so most connections at once. The default is 2,000.

    Returns:
        Its rows, which are read when Spark computes something of them.

    Raises:
        ConfigurationError: A date, `url` or `table` is of a wrong kind, `url` is no URL, a number
            has more than 64 bits, or the table has no such column.
        InvalidPostError: A state is none.
        pyspark.errors.PySparkException: An option can't work. Its text ends with our
            SourceOptionError.
    """
    of_kind(table, str, key="table")
    options = {"url": _text_of(url), "table": table}
    numbers = {
        "first_id": first_id,
        "last_id": last_id,
        "ids_per_partition": ids_per_partition,
        "max_partitions": max_partitions,
    }
    for key, value in numbers.items():
        if isinstance(value, int) and as_integer(value) is None:
            raise not_allowed(key, value, "a 64-bit integer")
        if value is not None:
            options[key] = str(value)
    for key, date in (("since", since), ("until", until)):
        if date is not None:
            of_kind(date, datetime, key=key)
            options[key] = date.isoformat()
    if states is not None:
        options["states"] = ",".join(state_values(states))
    schema = None if columns is None else _chosen(table, columns)
    reader = spark.read.format(FORMAT).options(**options)
    return (reader if schema is None else reader.schema(schema)).load()


def _text_of(url: str | URL) -> str:
    of_kind(url, str, URL, key="url")
    try:
        return make_url(url).render_as_string(hide_password=False)
    except ArgumentError as error:
        raise ConfigurationError(f"url: {error}", key="url") from error


def _chosen(table: str, columns: Sequence[str]) -> StructType:
    """Some columns of a table, by name. Raises ConfigurationError if it has not all of them."""
    of_kind(columns, Collection, key="columns")
    schema = _schema(table)
    if not all(name in schema.names for name in columns):
        raise not_allowed("columns", columns, f"names of columns of {table}")
    return StructType([schema[name] for name in columns])


def _schema(table: str) -> StructType:
    return spark_schema(kind_of(table).columns)
