"""Rows of history as an archive keeps them, without the parts that it leaves out, by Spark."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from history_pipeline.rows.columns import ERROR_TYPE, PAYLOAD
from history_pipeline.rows.parts import Part
from history_pipeline.rows.schema import HISTORY_SCHEMA

_ERROR_TYPE = ERROR_TYPE.replace("(?P<", "(?<")
"""As Java writes it."""


def omitted(rows: DataFrame, without: Iterable[Part]) -> DataFrame:
    """Rows of history without some parts. They keep all columns: payloads are NULL."""
    for part in without:
        if part is Part.PAYLOAD:
            nothing = {name: f.lit(None).cast(HISTORY_SCHEMA[name].dataType) for name in PAYLOAD}
            rows = rows.withColumns(nothing)
        else:
            rows = rows.withColumn("last_error", error_type())
    return rows


def error_type() -> Column:
    """What stays of `last_error`."""
    return f.nullif(f.regexp_extract("last_error", _ERROR_TYPE, 1), f.lit(""))
