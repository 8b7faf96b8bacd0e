"""Entry tables as Spark sees them, derived from their definition in `sql.tables`."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from history_pipeline.rows.arrow_schema import schema_of
from history_pipeline.rows.columns import HISTORY_COLUMNS, ArchivedColumn, columns_of
from sql.tables import entry_tables

_TYPES = {
    kind.simpleString(): kind
    for kind in (TimestampType(), LongType(), IntegerType(), BinaryType(), StringType())
}


def spark_schema(columns: Iterable[ArchivedColumn]) -> StructType:
    """The columns of a table in their order.

    Dates are instants (`TimestampType`), microseconds in UTC.

    All are nullable, as Spark reads them from Parquet: live rows and archived ones have one schema.
    """
    return StructType([StructField(column.name, _TYPES[column.type]) for column in columns])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark takes rows of `schema`: dates as `timestamp[us, tz=UTC]`."""
    return schema_of(
        ArchivedColumn(str(field.name), field.dataType.simpleString()) for field in schema.fields
    )


MAIN_SCHEMA: StructType = spark_schema(columns_of(entry_tables("bus_events").main))
"""All columns of a main table: what waits or runs."""
HISTORY_SCHEMA: StructType = spark_schema(HISTORY_COLUMNS)
"""All columns of a history table."""
