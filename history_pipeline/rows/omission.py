"""Rows of history as an archive keeps them, without the parts that it leaves out, by Spark."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from history_pipeline.rows.columns import ERROR_TYPE
from history_pipeline.rows.kind import HistoryKind
from history_pipeline.rows.parts import Part

_ERROR_TYPE = ERROR_TYPE.replace("(?P<", "(?<")
"""As Java writes it."""


def omitted(rows: DataFrame, kind: HistoryKind, without: Iterable[Part]) -> DataFrame:
    """Rows of a history without some parts. They keep all columns: payloads are NULL."""
    for part in without:
        if part is Part.PAYLOAD:
            nothing = {name: f.lit(None).cast(rows.schema[name].dataType) for name in kind.payload}
            rows = rows.withColumns(nothing)
        else:
            rows = rows.withColumn(kind.error, error_type(kind.error))
    return rows


def error_type(column: str) -> Column:
    """What stays of a column of errors."""
    return f.nullif(f.regexp_extract(column, _ERROR_TYPE, 1), f.lit(""))
