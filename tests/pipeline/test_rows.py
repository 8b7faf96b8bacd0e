"""One row after the other: its times, its node and its error, live and archived."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from history_pipeline.audits.figures import MEASURES
from history_pipeline.rows.entries import differing, once
from tests.pipeline.frames import TABLE, assert_same, read
from tests.pipeline.sample import ended


def times(spark: SparkSession, row: dict[str, Any]) -> tuple[int | None, ...]:
    """Microseconds of a row: its run, its start latency and its lateness."""
    found = read(spark, [row]).select(*(f"{measure}_micros" for measure in MEASURES)).first()
    assert found is not None
    return tuple(found)


def test_an_entry_due_at_once_waits_from_its_posting_to_its_start(spark: SparkSession) -> None:
    assert times(spark, ended(1)) == (1_000, 10_000, None)


def test_an_entry_of_a_later_date_is_late_from_that_date_on(spark: SparkSession) -> None:
    row = ended(1)
    due = row["created_date"] + timedelta(days=2)
    started = due + timedelta(microseconds=7)
    row |= {
        "effective_date": due,
        "started_date": started,
        "finished_date": started + timedelta(days=1),
    }
    assert times(spark, row) == (86_400_000_000, None, 7)


def test_an_entry_dated_back_waits_from_its_posting(spark: SparkSession) -> None:
    row = ended(1)
    row["effective_date"] -= timedelta(days=2)
    assert times(spark, row) == (1_000, 10_000, None)


@pytest.mark.parametrize(
    ("state", "errors", "waits"),
    [("PROCESSED", 1, None), ("FAILED", 0, 10_000), ("FAILED", 1, 10_000), ("FAILED", 2, None)],
)
def test_only_a_first_run_tells_how_long_an_entry_waited(
    spark: SparkSession, state: str, errors: int, waits: int | None
) -> None:
    assert times(spark, ended(1, state, error_count=errors)) == (1_000, waits, None)


def test_an_entry_that_never_started_is_not_timed(spark: SparkSession) -> None:
    assert times(spark, ended(1, "REMOVED", started_date=None)) == (None, None, None)


def test_a_clock_that_is_behind_makes_a_negative_wait_that_is_told(spark: SparkSession) -> None:
    row = ended(1)
    row["started_date"] = row["created_date"] - timedelta(seconds=1.5)
    assert times(spark, row)[1] == -1_500_000


def test_a_node_is_the_one_that_ran_it_or_for_a_reaped_row_the_dead_one(
    spark: SparkSession,
) -> None:
    rows = [
        ended(1, processing_owner="a", lane="b"),
        ended(2, "REAPED", processing_owner=None, lane="b"),
        ended(3, "REAPED", lane=""),
        ended(4, "REMOVED", processing_owner=None),
    ]
    assert [row["node"] for row in read(spark, rows).orderBy("record_id").collect()] == [
        "a",
        "b",
        None,
        None,
    ]


def test_an_error_type_is_what_stands_before_the_colon_of_the_first_line(
    spark: SparkSession,
) -> None:
    texts = ["ValueError: a: b", "Some\nThing: x", "", None, "x" * 300]
    rows = [ended(number, "FAILED", last_error=text) for number, text in enumerate(texts)]
    found = [row["error_type"] for row in read(spark, rows).orderBy("record_id").collect()]
    assert found == ["ValueError", "Some", "", None, "x" * 80]


def test_what_is_in_history_and_in_the_archive_is_counted_once(spark: SparkSession) -> None:
    live, archived = [ended(2), ended(3)], [ended(1), ended(2)]
    both = once(read(spark, live), read(spark, archived))
    assert_same(both.orderBy("record_id"), read(spark, [ended(1), ended(2), ended(3)]))
    assert differing(read(spark, live), read(spark, archived)).collect() == []


def test_one_id_with_different_content_is_told(spark: SparkSession) -> None:
    live, archived = (
        read(spark, [ended(1), ended(2)]),
        read(spark, [ended(1, error_count=1), ended(2)]),
    )
    assert [tuple(row) for row in differing(live, archived).collect()] == [(TABLE, 1)]


def test_equal_ids_of_two_tables_are_two_entries(spark: SparkSession) -> None:
    one, other = read(spark, [ended(1)]), read(spark, [ended(1)], "notifications")
    assert once(one, other).count() == 2
    assert differing(one, other).count() == 0
