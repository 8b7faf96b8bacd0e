"""Breakdowns of the audit, compared exactly with frames made by hand."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

from pyspark.sql import SparkSession

from history_pipeline.audits import breakdowns
from history_pipeline.audits.figures import STANDING_OUT
from tests.pipeline.frames import TABLE, assert_same, read
from tests.pipeline.sample import ended, sample_history


def test_failures_are_counted_by_type_and_error(spark: SparkSession) -> None:
    rows = [
        ended(1, "FAILED", last_error="ValueError: a"),
        ended(2, "FAILED", last_error="ValueError: b"),
        ended(3, "FAILED", last_error=None),
        ended(4, last_error="ValueError: processed after all"),
    ]
    expected = spark.createDataFrame(
        [(TABLE, "bus", "Order", "ValueError", 2), (TABLE, "bus", "Order", None, 1)],
        "table_name string, queue_name string, class_name string, error_type string, entries "
        "bigint",
    )
    assert_same(breakdowns.failures(read(spark, rows)), expected)


def test_retries_are_counted_by_failed_runs_and_outcome(spark: SparkSession) -> None:
    rows = [
        ended(1),
        ended(2, error_count=2),
        ended(3, "FAILED", error_count=2),
        ended(4, "REAPED", error_count=2),
    ]
    expected = spark.createDataFrame(
        [(TABLE, 0, "PROCESSED", 1), (TABLE, 2, "FAILED", 1), (TABLE, 2, "PROCESSED", 1)],
        "table_name string, failed_runs int, outcome string, entries bigint",
    )
    assert_same(breakdowns.retries(read(spark, rows)), expected)


def test_lateness_falls_into_classes_that_hold_their_lower_bound(spark: SparkSession) -> None:
    def late(record_id: int, micros: int) -> dict[str, Any]:
        row = ended(record_id)
        due = row["created_date"] + timedelta(hours=1)
        return row | {"effective_date": due, "started_date": due + timedelta(microseconds=micros)}

    rows = [
        late(1, -5),
        late(2, 9_999),
        late(3, 10_000),
        late(4, 3_600_000_000),
        late(5, 86_400_000_000),
        ended(6),
    ]
    expected = spark.createDataFrame(
        [
            (TABLE, None, 0.01, 2),
            (TABLE, 0.01, 0.1, 1),
            (TABLE, 3_600.0, 86_400.0, 1),
            (TABLE, 86_400.0, None, 1),
        ],
        "table_name string, from_seconds double, to_seconds double, entries bigint",
    )
    assert_same(breakdowns.lateness(read(spark, rows)), expected)


def test_what_dead_nodes_left_is_counted_by_node(spark: SparkSession) -> None:
    rows = [row for row in sample_history() if row["processing_state"] == "REAPED"]
    finished = [row["finished_date"] for row in rows]
    found = breakdowns.redispatches(read(spark, sample_history())).collect()
    assert [(row["node"], row["reaped"]) for row in found] == [("node-b", 4)]
    zone = found[0]["first"].astimezone(UTC), found[0]["last"].astimezone(UTC)
    assert zone == (min(finished), max(finished))


def test_the_slowest_come_first_and_ties_by_id(spark: SparkSession) -> None:
    most = STANDING_OUT
    rows = [ended(number) for number in range(1, most + 2)]
    rows[most]["finished_date"] = rows[most]["started_date"] + timedelta(milliseconds=most)
    found = breakdowns.slowest(read(spark, rows)).select("record_id", "seconds")
    slow = [
        (most, most),
        (most + 1, most),
        *((number, number) for number in range(most - 1, 1, -1)),
    ]
    expected = spark.createDataFrame(
        [(record_id, millis / 1_000) for record_id, millis in slow],
        "record_id bigint, seconds double",
    )
    assert_same(found, expected)


def test_the_most_failing_come_first_without_what_reaping_left_behind(spark: SparkSession) -> None:
    rows = [
        ended(1),
        ended(2, error_count=1),
        ended(3, "FAILED", error_count=4),
        ended(4, redispatch_count=2),
        ended(5, "REAPED", error_count=9),
        ended(6, error_count=1, redispatch_count=1),
    ]
    found = breakdowns.most_failing(read(spark, rows)).select(
        "record_id", "failed_runs", "redispatches"
    )
    expected = spark.createDataFrame(
        [(3, 4, 0), (6, 1, 1), (2, 1, 0), (4, 0, 2)],
        "record_id bigint, failed_runs int, redispatches int",
    )
    assert_same(found, expected)
