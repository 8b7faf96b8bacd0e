"""The statistics in SQL are those of the report, on the same rows of each database."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from sqlalchemy import URL

import stickybus
from history_pipeline import audit
from tests.pipeline.random_history import random_history
from tests.pipeline.sample import write_rows

FIGURES = ("count", "avg", "min", "max", "p50", "p90", "p95", "p99")
RETRIES = ("ok", "retries")
COUNTS = ("processed", "failed", "removed", "reaped")


def test_the_statistics_in_sql_are_those_of_the_report_on_the_same_rows(
    spark: SparkSession, database_url: URL
) -> None:
    write_rows(database_url, random_history(seed=24, rows=700))
    write_rows(
        database_url,
        [
            {**row, "queue_name": "other", "record_id": row["record_id"] + 1_000}
            for row in random_history(seed=42, rows=300)
        ],
    )
    expected = {
        row["queue_name"]: row
        for row in audit(spark, url=database_url).rows("statistics")
        if row["grouping"] == "queue" and row["table_name"] == "bus_events"
    }

    with stickybus.inspect(database_url) as inspector:
        counts = inspector.queue_stats(table="bus_events", age=None)
        retries = inspector.retry_stats(table="bus_events", age=None)
        times = inspector.processing_time_stats(table="bus_events", age=None)

    assert len(expected) > 1

    def by_queue(found: Any, names: tuple[str, ...]) -> dict[str, list[float]]:
        return {one.queue_name: [getattr(one, name) for name in names] for one in found}

    def of_report(names: tuple[str, ...], prefix: str = "") -> dict[str, list[float]]:
        return {queue: [row[prefix + name] for name in names] for queue, row in expected.items()}

    assert by_queue(counts, COUNTS) == of_report(COUNTS)
    assert by_queue(retries, RETRIES) == of_report(RETRIES)
    assert by_queue(times, FIGURES) == of_report(FIGURES, "handler_")
