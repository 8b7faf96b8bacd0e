"""The figures of the audit are those that plain Python finds on random histories."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from history_pipeline.audits import breakdowns
from history_pipeline.audits.figures import KEYS
from history_pipeline.audits.statistics import statistics
from tests.pipeline import oracle
from tests.pipeline.frames import TABLE, assert_same, read
from tests.pipeline.random_history import random_history
from tests.pipeline.sample import ended, sample_history


def total(spark: SparkSession, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found = statistics(read(spark, rows)).where("grouping = 'total'").first()
    assert found is not None
    return found.asDict()


def test_a_date_of_no_sense_does_not_end_the_audit(spark: SparkSession) -> None:
    year_1, year_9999 = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
    rows = [ended(number, started_date=year_1, finished_date=year_9999) for number in range(40)]
    found = total(spark, rows)
    assert found["handler_avg"] is None
    assert found["handler_p50"] == found["handler_max"] == (year_9999 - year_1).total_seconds()


@pytest.mark.parametrize(
    "rows", [random_history(seed, size) for seed, size in ((1, 1), (2, 40), (3, 3_000))]
)
def test_the_statistics_are_those_that_plain_python_finds(
    spark: SparkSession, rows: list[dict[str, Any]]
) -> None:
    expected = oracle.statistics(rows, TABLE)
    found = statistics(read(spark, rows))
    order = ("total", "queue", "event_type", "node", "hour")
    # Nulls first, as Spark sorts them; a grouping has no two kinds of key in one place.
    groups = sorted(
        expected,
        key=lambda group: (
            order.index(group[0]),
            *((key is not None, key or 0) for key in group[1]),
        ),
    )
    names = [name for name in found.columns if name not in {"grouping", *KEYS}]
    frame = spark.createDataFrame(
        [
            (grouping, *keys, *(expected[grouping, keys][name] for name in names))
            for grouping, keys in groups
        ],
        found.schema,
    )
    assert_same(found, frame)


def test_the_sample_history_has_the_figures_that_it_was_written_with(spark: SparkSession) -> None:
    found = total(spark, sample_history())
    counted = {
        name: found[name]
        for name in ("processed", "failed", "removed", "reaped", "ok", "retried", "retries")
    }
    assert counted == {
        "processed": 26,
        "failed": 5,
        "removed": 3,
        "reaped": 4,
        "ok": 23,
        "retried": 7,
        "retries": 1 + 2 + 3 + 3 + 3 + 3 + 1,
    }


def test_an_empty_history_has_no_statistics(spark: SparkSession) -> None:
    assert statistics(read(spark, [])).collect() == []
    for step in (
        breakdowns.failures,
        breakdowns.retries,
        breakdowns.lateness,
        breakdowns.redispatches,
        breakdowns.slowest,
        breakdowns.most_failing,
    ):
        assert step(read(spark, [])).collect() == []
