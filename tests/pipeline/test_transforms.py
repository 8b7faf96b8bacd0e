"""The figures of the audit, compared exactly.

They are compared with frames made by hand, and with plain Python on random histories.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- as all of Spark's documents name it
from pyspark.testing import assertDataFrameEqual

from history_pipeline.audits import breakdowns
from history_pipeline.audits.completeness import chain_faults, gaps, known_ids
from history_pipeline.audits.figures import KEYS, MEASURES, Fault
from history_pipeline.audits.percentiles import percentiles
from history_pipeline.audits.statistics import statistics
from history_pipeline.rows.columns import READ_COLUMNS
from history_pipeline.rows.entries import differing, entries, once
from history_pipeline.rows.schema import HISTORY_SCHEMA
from tests.pipeline import oracle
from tests.pipeline.random_history import random_history
from tests.pipeline.sample import ended, sample_history

TABLE = "bus_events"
assert_same = partial(assertDataFrameEqual, rtol=0.0, atol=0.0, checkRowOrder=True)
"""Exactly, in order; the default is neither."""


def history(spark: SparkSession, rows: Sequence[dict[str, Any]]) -> DataFrame:
    columns = HISTORY_SCHEMA.names
    return spark.createDataFrame(
        [tuple(row[name] for name in columns) for row in rows], HISTORY_SCHEMA
    )


def read(spark: SparkSession, rows: Sequence[dict[str, Any]], table: str = TABLE) -> DataFrame:
    return entries(history(spark, rows).select(*READ_COLUMNS), table)


def total(spark: SparkSession, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found = statistics(read(spark, rows)).where("grouping = 'total'").first()
    assert found is not None
    return found.asDict()


def times(spark: SparkSession, row: dict[str, Any]) -> tuple[int | None, ...]:
    """Microseconds of a row: its run, its start latency and its lateness."""
    found = read(spark, [row]).select(*(f"{measure}_micros" for measure in MEASURES)).first()
    assert found is not None
    return tuple(found)


# -- one row after the other ---------------------------------------------------------------------


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


def test_a_date_of_no_sense_does_not_end_the_audit(spark: SparkSession) -> None:
    year_1, year_9999 = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
    rows = [ended(number, started_date=year_1, finished_date=year_9999) for number in range(40)]
    found = total(spark, rows)
    assert found["handler_avg"] is None
    assert found["handler_p50"] == found["handler_max"] == (year_9999 - year_1).total_seconds()


# -- percentiles ---------------------------------------------------------------------------------


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


# -- statistics ----------------------------------------------------------------------------------


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


# -- breakdowns ----------------------------------------------------------------------------------


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
    rows = [ended(number) for number in (1, 2, 3, 4)]
    rows[3]["finished_date"] = rows[3]["started_date"] + timedelta(milliseconds=3)
    found = breakdowns.slowest(read(spark, rows), limit=3).select("record_id", "seconds")
    expected = spark.createDataFrame(
        [(3, 0.003), (4, 0.003), (2, 0.002)], "record_id bigint, seconds double"
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


# -- live history and archive --------------------------------------------------------------------


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


# -- completeness --------------------------------------------------------------------------------

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
