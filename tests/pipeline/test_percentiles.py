"""Percentiles are exact, as the standard library finds them."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- as all of Spark's documents name it

from history_pipeline.audits.percentiles import percentiles
from tests.pipeline import oracle
from tests.pipeline.frames import assert_same


def test_percentiles_of_one_of_two_and_of_equal_values(spark: SparkSession) -> None:
    values = spark.createDataFrame(
        [("one", 7), ("two", 0), ("two", 10), *[("ties", 5)] * 9, ("none", None)],
        "key string, value bigint",
    )
    expected = spark.createDataFrame(
        [("one", 7.0, 7.0, 7.0, 7.0), ("ties", 5.0, 5.0, 5.0, 5.0), ("two", 5.0, 9.0, 9.5, 9.9)],
        "key string, p50 double, p90 double, p95 double, p99 double",
    )
    found = percentiles(values, ["key"], [["key"]], "value").orderBy("key")
    assert_same(
        found.select("key", *(F.col(f"p{p}").cast("double") for p in (50, 90, 95, 99))), expected
    )


def test_a_null_is_a_key_and_no_key_is_a_group_of_all(spark: SparkSession) -> None:
    values = spark.createDataFrame([(None, 1), (None, 3), ("a", 8)], "key string, value bigint")
    found = percentiles(values, ["key"], [[], ["key"]], "value").select(
        "set", "key", F.col("p50").cast("double")
    )
    assert sorted(map(tuple, found.collect()), key=str) == [
        (0, None, 3.0),
        (1, "a", 8.0),
        (1, None, 2.0),
    ]


@pytest.mark.parametrize("seed", range(4))
def test_percentiles_are_those_of_the_standard_library_for_any_values(
    spark: SparkSession, seed: int
) -> None:
    generator = random.Random(seed)  # noqa: S311 -- a seeded history
    spread = generator.choice([3, 1_000, 10**9, 2**62])
    rows = [
        (
            generator.choice(["a", "b", None]),
            generator.choice([0, generator.randint(-spread, spread), spread]),
        )
        for _ in range(generator.choice([5, 100, 3_000]))
    ]
    values = spark.createDataFrame(rows, "key string, value bigint")
    found = {row["key"]: row for row in percentiles(values, ["key"], [["key"]], "value").collect()}
    for key in {key for key, _ in rows}:
        of_key = [value * 1_000_000 for other, value in rows if other == key]
        for percent in (50, 90, 95, 99):
            assert float(found[key][f"p{percent}"]) == oracle.percentile(of_key, percent)
