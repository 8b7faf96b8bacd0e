"""History is moved to an archive.

All rows move exactly once, and only archived rows are deleted.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL

from history_pipeline import Scale, archive_history
from history_pipeline.archives.archive import Archive
from history_pipeline.archives.manifest import live_files
from history_pipeline.rows.fingerprint import joined
from history_pipeline.scale import HELP, scale_of
from queue_core.errors import ConfigurationError, NaiveDateTimeError
from sql.database import Database
from sql.statements.archives import Archives
from stickybus import PersistentBus
from tests import requirements as needs
from tests.pipeline.archived import SAMPLE, archived, manifests, rows_of
from tests.pipeline.sample import ended, sample_history, write_rows


def test_history_is_in_the_archive_row_by_row_and_no_longer_in_the_table(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    before = rows_of(spark, history_url)

    done = archive_history(spark, history_url, target)

    assert len(before) == SAMPLE == done.entries
    assert archived(spark, target) == before
    assert rows_of(spark, history_url) == []
    [manifest] = manifests(spark, target)
    assert done.runs == [manifest.run]
    assert manifest.fingerprint == joined([file.fingerprint for file in manifest.files])
    assert manifest.fingerprint.rows == SAMPLE
    assert (manifest.first_id, manifest.last_id) == (1, 40)
    database = Database(history_url)
    assert database.fetch(lambda connection: Archives().deleted_runs(connection, "bus_events")) == {
        manifest.run
    }
    database.close()


def test_only_what_ended_before_the_date_goes_and_live_entries_stay(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    midnight = datetime(2026, 3, 2, tzinfo=UTC)
    write_rows(history_url, [ended(50, "AVAILABLE")], "bus_events")
    before = rows_of(spark, history_url)

    archive_history(spark, history_url, target, before=midnight)

    assert archived(spark, target) == [row for row in before if row["record_id"] <= 3]
    assert rows_of(spark, history_url) == [row for row in before if row["record_id"] > 3]
    bus = PersistentBus(history_url)
    assert [entry.record_id for entry in bus.find()] == [50]
    bus.close()


@needs.any_database
def test_what_ends_after_the_start_stays_though_the_date_is_yet_to_come(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    before, now = rows_of(spark, history_url), datetime.now(UTC)
    write_rows(history_url, [ended(50, finished_date=now + timedelta(hours=1))])

    done = archive_history(spark, history_url, target, before=now + timedelta(days=1))

    assert now <= done.before < now + timedelta(hours=1)
    assert archived(spark, target) == before
    assert [row["record_id"] for row in rows_of(spark, history_url)] == [50]


@needs.any_database
def test_files_are_parted_by_day_and_sorted_by_queue(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    more = [ended(number, queue_name=f"queue-{number % 3}") for number in range(60, 90)]
    write_rows(history_url, more)

    archive_history(spark, history_url, target)

    files = live_files(manifests(spark, target))
    assert [file.event_date for file in files] == ["2026-03-01", "2026-03-02"]
    for file in files:
        parquet = pq.ParquetFile(f"{target}/bus_events/{file.path}")
        table = parquet.read(["record_id", "queue_name", "finished_date"])
        rows = list(
            zip(*(table[name].to_pylist() for name in ("queue_name", "record_id")), strict=True)
        )
        assert rows == sorted(rows)
        assert {
            date.astimezone(UTC).date().isoformat() for date in table["finished_date"].to_pylist()
        } == {file.event_date}
        assert (min(row[1] for row in rows), max(row[1] for row in rows)) == (
            file.first_id,
            file.last_id,
        )
        assert parquet.metadata.row_group(0).column(0).compression == "ZSTD"
        assert parquet.schema_arrow.field("finished_date").type.unit == "us"


def test_an_empty_history_archives_and_reads_as_no_rows(
    spark: SparkSession, database_url: URL, target: str
) -> None:
    for _ in range(2):
        done = archive_history(spark, database_url, target)
        assert (done.runs, done.entries, done.finished) == ([], 0, 0)

    assert archived(spark, target) == []


def test_history_goes_in_runs_of_a_bounded_size(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    before, told = rows_of(spark, history_url), list[tuple[str, int, int]]()

    done = archive_history(
        spark,
        history_url,
        target,
        scale=Scale(run_rows=15),
        progress=lambda *step: told.append(step),
    )

    assert [manifest.fingerprint.rows for manifest in manifests(spark, target)] == [15, 15, 8]
    assert [manifest.number for manifest in manifests(spark, target)] == [1, 2, 3]
    assert len({manifest.archive for manifest in manifests(spark, target)}) == 1
    assert archived(spark, target) == before
    assert (len(done.runs), done.entries, rows_of(spark, history_url)) == (3, SAMPLE, [])
    for step in ("copied", "deleted"):
        assert [told for told in told if told[0] == step][-1] == (step, SAMPLE, SAMPLE)


def test_what_ends_later_is_archived_by_the_next_call(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    archive_history(spark, history_url, target)
    # Lower than the ids of the first run: it ran for long.
    write_rows(history_url, [ended(12), ended(41)])

    assert archive_history(spark, history_url, target).entries == 2

    assert [row["record_id"] for row in archived(spark, target)] == list(range(1, 13)) + list(
        range(14, 42)
    )


@needs.any_database
def test_a_date_needs_a_time_zone(spark: SparkSession, history_url: URL, target: str) -> None:
    with pytest.raises(NaiveDateTimeError):
        archive_history(spark, history_url, target, before=datetime(2026, 1, 1))  # noqa: DTZ001 -- the mistake


@needs.any_database
def test_a_day_larger_than_a_file_should_be_has_several(
    spark: SparkSession, history_url: URL, tmp_path: Path
) -> None:
    done = archive_history(
        spark, history_url, str(tmp_path), scale=Scale(ids_per_partition=10, file_bytes=1)
    )
    days = [
        file.event_date
        for file in live_files(Archive(spark, str(tmp_path), "bus_events").manifests())
    ]
    assert days.count("2026-03-02") > 1
    assert done.entries == len(sample_history())


@pytest.mark.parametrize("name", HELP)
def test_a_size_is_an_integer_from_one_on(name: str) -> None:
    for value in (0, -(10**5000), 0.5, 1e9, True, None, "5", Decimal("NaN")):
        wrong: Any = value
        with pytest.raises(ConfigurationError, match=f"{name}=.* is not allowed"):
            Scale(**{name: wrong})


def test_former_keywords_of_sizes_still_work_and_warn() -> None:
    with pytest.warns(
        DeprecationWarning, match=r"run_rows= will be removed in 1\.0: use scale=Scale"
    ):
        scale = scale_of(Scale(file_bytes=7), run_rows=5, file_bytes=None)

    assert scale == Scale(run_rows=5, file_bytes=7)
