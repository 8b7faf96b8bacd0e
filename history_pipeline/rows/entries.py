"""Rows of history as the audit reads them: without payloads, with times in microseconds.

Each step is a function from DataFrame to DataFrame. `docs/reference/statistics.md` defines the
columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import ge, lt

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- as all of Spark's documents name it

from history_pipeline.period import Period
from history_pipeline.rows.columns import ERROR_TYPE_LENGTH, READ_COLUMNS
from history_pipeline.rows.omission import error_type

KEY = ("table_name", "record_id", "finished_date")
"""The columns that identify a row of history, among all tables of a database."""


def entries(history: DataFrame, table: str) -> DataFrame:
    """Rows of the history of the main table `table`, one for one, as the audit takes them.

    They have `READ_COLUMNS`.

    `content` is a hash of all that was read: two rows of one id that differ in it are not the same
    row. Of an error it covers the type alone: an archive may leave out its message.
    """
    started = F.unix_micros("started_date")
    posted, due = F.unix_micros("created_date"), F.unix_micros("effective_date")
    failed = F.col("processing_state") == "FAILED"
    content = [
        error_type(name) if name == "last_error" else F.col(name) for name in sorted(READ_COLUMNS)
    ]
    # A retry overwrites both dates, so that only the first run tells how long an entry waited for
    # its start.
    first_run = F.col("error_count") <= F.when(failed, 1).otherwise(0)
    scheduled = due > posted
    return history.select(
        F.lit(table).alias("table_name"),
        "record_id",
        F.coalesce("origin_id", "record_id").alias("chain_id"),
        "queue_name",
        "class_name",
        _node().alias("node"),
        F.col("processing_state").alias("outcome"),
        "error_count",
        "redispatch_count",
        "finished_date",
        F.date_trunc("hour", "finished_date").alias("hour"),
        (F.unix_micros("finished_date") - started).alias("handler_micros"),
        F.when(first_run & ~scheduled, started - posted).alias("start_latency_micros"),
        F.when(first_run & scheduled, started - due).alias("lateness_micros"),
        F.when(failed, _error_type()).alias("error_type"),
        F.xxhash64(*content).alias("content"),
    )


def _node() -> Column:
    """The node that ran an entry.

    For a REAPED row it is the dead node, in whose lane it stood even if it had not started.
    """
    return F.when(F.col("processing_state") == "REAPED", F.nullif("lane", F.lit(""))).otherwise(
        F.col("processing_owner")
    )


def _error_type() -> Column:
    """Return the name of the error's type: the text before the first colon of its first line."""
    first_line = F.substring_index("last_error", "\n", 1)
    return F.substring(F.substring_index(first_line, ":", 1), 1, ERROR_TYPE_LENGTH)


def once(live: DataFrame, archived: DataFrame) -> DataFrame:
    """The entries of both, each once.

    Some are in both, between the manifest's publication and their deletion.

    If the two differ, the archived row is taken; `differing` lists such ids.
    """
    return (
        live.join(archived.select(*KEY), on=list(KEY), how="left_anti")
        .select(*live.columns)
        .unionByName(archived)
    )


def differing(live: DataFrame, archived: DataFrame) -> DataFrame:
    """Ids that are in live history and in the archive with different content.

    Columns: table_name, record_id.
    """
    other = archived.select("table_name", "record_id", F.col("content").alias("archived_content"))
    both = live.join(other, on=["table_name", "record_id"])
    return both.where("content != archived_content").select("table_name", "record_id").distinct()


def all_of(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of several DataFrames (one at least) of the same columns."""
    return reduce(DataFrame.unionByName, frames)


def within(rows: DataFrame, period: Period) -> DataFrame:
    """The rows of entries that ended in a period."""
    for bound, compare in ((period.since, ge), (period.until, lt)):
        if bound is not None:
            rows = rows.where(compare(F.col("finished_date"), F.lit(bound)))
    return rows
