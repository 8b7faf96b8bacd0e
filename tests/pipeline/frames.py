"""Frames of histories made by hand, and their exact comparison."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from history_pipeline.rows.columns import READ_COLUMNS
from history_pipeline.rows.entries import entries
from history_pipeline.rows.schema import HISTORY_SCHEMA

TABLE = "bus_events"
assert_same = partial(assertDataFrameEqual, rtol=0.0, atol=0.0, checkRowOrder=True)
"""Exactly, in order; the default is neither."""


def history(spark: SparkSession, rows: Sequence[dict[str, Any]]) -> DataFrame:
    columns = HISTORY_SCHEMA.names
    return spark.createDataFrame(
        [tuple(row[name] for name in columns) for row in rows], HISTORY_SCHEMA
    )


def read(spark: SparkSession, rows: Sequence[dict[str, Any]], table: str = TABLE) -> DataFrame:
    return entries(history(spark, rows).select(*READ_COLUMNS), table)
