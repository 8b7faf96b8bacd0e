"""Faults of a history: gaps of ids, chains without an end, and entries that ended twice."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from history_pipeline.audits.completeness import chain_faults, gaps, known_ids
from history_pipeline.audits.figures import Fault
from tests.pipeline.frames import TABLE, assert_same, read
from tests.pipeline.sample import ended, sample_history

IDS = "table_name string, record_id bigint"


def test_gaps_are_found_within_and_across_blocks(spark: SparkSession) -> None:
    block = 2**20
    ids = [1, 2, 2, 5, block - 2, block + 3, 3 * block, 3 * block + 1]
    frame = spark.createDataFrame([(TABLE, one) for one in ids] + [("other", 4), ("other", 6)], IDS)
    expected = spark.createDataFrame(
        [
            (TABLE, 3, 4, 2),
            (TABLE, 6, block - 3, block - 8),
            (TABLE, block - 1, block + 2, 4),
            (TABLE, block + 4, 3 * block - 1, 2 * block - 4),
            ("other", 5, 5, 1),
        ],
        "table_name string, first_id bigint, last_id bigint, missing bigint",
    )
    assert_same(gaps(frame).orderBy("table_name", "first_id"), expected)
    bounds = [tuple(row) for row in known_ids(frame).orderBy("table_name").collect()]
    assert bounds == [(TABLE, 1, 3 * block + 1), ("other", 4, 6)]


@pytest.mark.parametrize("seed", range(3))
def test_gaps_and_ids_together_are_all_ids(spark: SparkSession, seed: int) -> None:
    generator = random.Random(seed)  # noqa: S311 -- a seeded history
    ids = generator.sample(range(-50, 3_000_000), 500)
    frame = spark.createDataFrame([(TABLE, one) for one in ids], IDS)
    found = [range(row["first_id"], row["last_id"] + 1) for row in gaps(frame).collect()]
    assert sum(map(len, found)) + len(ids) == max(ids) - min(ids) + 1
    assert not any(one in gap for gap in found for one in ids)


def live(spark: SparkSession, rows: Sequence[tuple[int, int]] = ()) -> DataFrame:
    return spark.createDataFrame(
        [(TABLE, record_id, chain) for record_id, chain in rows], f"{IDS}, chain_id bigint"
    )


def faults(
    spark: SparkSession, rows: Sequence[dict[str, Any]], *alive: tuple[int, int]
) -> set[tuple[int, str]]:
    found = chain_faults(read(spark, rows), live(spark, alive))
    return {(row["record_id"], row["fault"]) for row in found.collect()}


def test_a_sound_history_has_no_faults(spark: SparkSession) -> None:
    assert faults(spark, sample_history(), (41, 41), (42, 42)) == set()


def test_a_chain_whose_last_link_was_reaped_has_no_end_unless_its_copy_lives(
    spark: SparkSession,
) -> None:
    rows = [ended(1, "REAPED"), ended(2, "REAPED", origin_id=1), ended(3)]
    assert faults(spark, rows) == {(1, Fault.NO_END)}
    assert faults(spark, rows, (4, 1)) == set()


def test_a_chain_whose_first_links_were_truncated_has_its_end(spark: SparkSession) -> None:
    assert faults(spark, [ended(7, origin_id=5)]) == set()


def test_two_ends_of_a_chain_and_two_rows_of_an_id_are_entries_that_ended_twice(
    spark: SparkSession,
) -> None:
    by_chain = [ended(1, "REAPED"), ended(2, origin_id=1), ended(3, "FAILED", origin_id=1)]
    first_ended = [ended(4), ended(5, origin_id=4)]
    same_id = [ended(6), ended(6, finished_date=ended(9)["finished_date"])]
    found = faults(spark, [*by_chain, *first_ended, *same_id, ended(7)])
    assert found == {(1, Fault.ENDED_TWICE), (4, Fault.ENDED_TWICE), (6, Fault.ENDED_TWICE)}


def test_an_entry_that_has_ended_and_is_live_is_told(spark: SparkSession) -> None:
    rows = [ended(1), ended(2, "REAPED"), ended(3, origin_id=2)]
    assert faults(spark, rows, (1, 1), (4, 2)) == {
        (1, Fault.ENDED_AND_LIVE),
        (2, Fault.ENDED_AND_LIVE),
    }
