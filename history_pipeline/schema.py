"""The history table as Spark and Arrow see it, derived from its definition in `sql.tables`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from sqlalchemy import BigInteger, Column, Integer, LargeBinary, String, Table

from sql.tables import entry_tables
from sql.types import UtcDateTime

_KINDS: tuple[tuple[type[Any], DataType], ...] = (
    (UtcDateTime, TimestampType()),
    # A BigInteger is an Integer, too.
    (BigInteger, LongType()),
    (Integer, IntegerType()),
    (LargeBinary, BinaryType()),
    (String, StringType()),
)
"""SQLAlchemy's types and Spark's, the more special first."""


def spark_schema(table: Table) -> StructType:
    """The columns of an entry table in their order.

    Dates are instants (`TimestampType`), microseconds in UTC.

    All are nullable, as Spark reads them from Parquet: live rows and archived ones have one schema.
    """
    return StructType([StructField(column.name, _kind(column)) for column in table.columns])


def _kind(column: Column[Any]) -> DataType:
    return next(kind for known, kind in _KINDS if isinstance(column.type, known))


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark takes rows of `schema`: dates as `timestamp[us, tz=UTC]`."""
    return to_arrow_schema(schema, timezone="UTC")


MAIN_SCHEMA: StructType = spark_schema(entry_tables("bus_events").main)
"""All columns of a main table: what waits or runs."""
HISTORY_SCHEMA: StructType = spark_schema(entry_tables("bus_events").history)
"""All columns of a history table."""
