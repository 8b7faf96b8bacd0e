"""Figures beside the statistics: failures, retries, lateness, redispatches and outliers.

Every function takes the rows of `entries.entries`.
"""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- as all of Spark's documents name it

from history_pipeline.audits.figures import LATENESS_SECONDS, STANDING_OUT

_ENTRY = ("table_name", "record_id", "queue_name", "class_name", "node", "outcome")
_MICROS = 1_000_000.0
"""Microseconds of a second."""


def failures(entries: DataFrame) -> DataFrame:
    """Entries FAILED by `table_name`, `queue_name`, `class_name` and `error_type`.

    The type is null if none was written.

    Column `entries` (bigint); most first.
    """
    failed = entries.where("outcome = 'FAILED'")
    keys = ["table_name", "queue_name", "class_name", "error_type"]
    return (
        failed.groupBy(*keys).agg(F.count("*").alias("entries")).orderBy(F.desc("entries"), *keys)
    )


def retries(entries: DataFrame) -> DataFrame:
    """Entries PROCESSED or FAILED by table_name, `failed_runs` and outcome, in that order.

    Their number is the column `entries` (bigint).
    """
    ran = entries.where("outcome IN ('PROCESSED', 'FAILED')").withColumnRenamed(
        "error_count", "failed_runs"
    )
    keys = ["table_name", "failed_runs", "outcome"]
    return ran.groupBy(*keys).agg(F.count("*").alias("entries")).orderBy(*keys)


def lateness(entries: DataFrame) -> DataFrame:
    """How late entries of a later date started, by table_name and class of lateness, in order.

    Their number is the column `entries` (bigint).

    A class holds entries that were late by at least `from_seconds` (null: no lower bound) and by
    less than `to_seconds` (null: no upper bound).
    """
    bounds = [None, *LATENESS_SECONDS, None]
    classes = [
        F.struct(
            F.lit(lower).cast("double").alias("from_seconds"),
            F.lit(upper).cast("double").alias("to_seconds"),
        )
        for lower, upper in pairwise(bounds)
    ]
    late = F.col("lateness_micros")
    place = reduce(
        lambda passed, bound: passed + (late >= int(bound * _MICROS)).cast("int"),
        LATENESS_SECONDS,
        F.lit(0),
    )
    chosen = F.get(F.array(*classes), place)
    scheduled = entries.where(late.isNotNull()).select("table_name", chosen.alias("class"))
    counted = scheduled.groupBy("table_name", "class").agg(F.count("*").alias("entries"))
    return counted.select("table_name", "class.*", "entries").orderBy(
        "table_name", F.asc_nulls_first("from_seconds")
    )


def redispatches(entries: DataFrame) -> DataFrame:
    """Return the redispatches of each dead node, most first.

    Columns: `node`, `reaped` (bigint: entries taken from it), and the dates `first` and `last`.
    """
    reaped = entries.where("outcome = 'REAPED'").groupBy("node")
    dates = (F.min("finished_date").alias("first"), F.max("finished_date").alias("last"))
    return reaped.agg(F.count("*").alias("reaped"), *dates).orderBy(F.desc("reaped"), "node")


def slowest(entries: DataFrame) -> DataFrame:
    """Return the entries whose last run took longest.

    Columns: their keys, `finished_date`, and `seconds` (double).
    """
    took = entries.where("handler_micros IS NOT NULL").withColumn(
        "seconds", F.col("handler_micros") / _MICROS
    )
    ordered = took.orderBy(F.desc("handler_micros"), "table_name", "record_id")
    return ordered.select(*_ENTRY, "finished_date", "seconds").limit(STANDING_OUT)


def most_failing(entries: DataFrame) -> DataFrame:
    """Return the entries with most failed runs, then most redispatches.

    Columns: their keys, both counts, and `error_type`.

    Entries without either are left out. So are REAPED rows, whose copies have the same counts.
    """
    ended = entries.where("outcome != 'REAPED' AND (error_count > 0 OR redispatch_count > 0)")
    ordered = ended.orderBy(
        F.desc("error_count"), F.desc("redispatch_count"), "table_name", "record_id"
    )
    counts = (
        F.col("error_count").alias("failed_runs"),
        F.col("redispatch_count").alias("redispatches"),
    )
    return ordered.select(*_ENTRY, "finished_date", *counts, "error_type").limit(STANDING_OUT)
