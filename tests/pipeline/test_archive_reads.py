"""What was archived is read, as a whole and by day; what is missing is named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL

from history_pipeline import Scale, archive_history, read_archive
from history_pipeline.archives.archive import Archive
from history_pipeline.archives.manifest import live_files
from history_pipeline.errors import ArchiveDamagedError, ArchiveNotFoundError, ArchiveTargetError
from history_pipeline.period import period_of
from tests import requirements as needs
from tests.pipeline.archived import SAMPLE, manifests
from tests.pipeline.sample import ended, sample_history, write_rows


@needs.any_database
def test_an_archive_without_one_of_its_parts_says_which(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    archive_history(spark, history_url, target, scale=Scale(run_rows=20))
    table = Path(target) / "bus_events"
    first, second = (table / manifest.path for manifest in manifests(spark, target))
    [file, *_others] = live_files(manifests(spark, target))

    (table / file.path).rename(table / "elsewhere")
    with pytest.raises(ArchiveDamagedError, match=Path(file.path).name):
        read_archive(spark, target)
    (table / "elsewhere").rename(table / file.path)

    first.rename(table / "elsewhere")
    with pytest.raises(ArchiveDamagedError, match=r"manifests/00000001\.json is missing"):
        read_archive(spark, target)
    (table / "elsewhere").rename(first)

    second.write_text("{}")
    with pytest.raises(ArchiveDamagedError, match=r"00000002\.json is no manifest"):
        read_archive(spark, target)


@needs.any_database
def test_a_directory_without_an_archive_is_an_error_and_not_an_empty_one(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    for table in (None, "bus_events"):
        with pytest.raises(ArchiveNotFoundError, match="Nothing was read"):
            read_archive(spark, target, table)
    with pytest.raises(ArchiveTargetError, match="pattern"):
        read_archive(spark, f"{target}/*")
    with pytest.raises(ArchiveTargetError, match="Nothing was read or written"):
        archive_history(spark, history_url, "s3a://bucket/archive")


@needs.any_database
def test_archives_of_two_tables_stand_side_by_side(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    write_rows(history_url, [ended(1)], "notifications_history")
    archive_history(spark, history_url, target)
    archive_history(spark, history_url, target, table="notifications")

    assert read_archive(spark, target, "notifications").count() == 1
    assert read_archive(spark, target, "bus_events_history").count() == SAMPLE
    with pytest.raises(ArchiveNotFoundError, match="bus_events, notifications: say which"):
        read_archive(spark, target)


@needs.any_database
def test_a_period_is_read_from_the_files_of_its_days_alone(
    spark: SparkSession, history_url: URL, tmp_path: Path
) -> None:
    """Files of other days may even be gone."""
    target, midnight = str(tmp_path), datetime(2026, 3, 2, tzinfo=UTC)
    archive_history(spark, history_url, target, scale=Scale(run_rows=20))
    files = live_files(Archive(spark, target, "bus_events").manifests())
    assert sorted(file.event_date[-2:] for file in files) == ["01", "02", "02"]
    for file in files:
        if file.event_date == "2026-03-01":
            (tmp_path / "bus_events" / file.path).unlink()

    found = read_archive(spark, target, since=midnight)

    assert len(found.inputFiles()) == 2
    sample = sample_history()
    ids = [row["record_id"] for row in sample if row["finished_date"] >= midnight]
    assert sorted(row.record_id for row in found.select("record_id").collect()) == ids
    [tenth] = [row["finished_date"] for row in sample if row["record_id"] == 10]
    only = read_archive(spark, target, since=tenth, until=tenth + timedelta(microseconds=1))
    assert [row.record_id for row in only.select("record_id").collect()] == [10]
    assert read_archive(spark, target, since=midnight + timedelta(days=1)).inputFiles() == []
    with pytest.raises(ArchiveDamagedError, match="event_date=2026-03-01"):
        read_archive(spark, target, until=midnight)


@pytest.mark.parametrize(
    ("since", "until", "meets"),
    [
        (None, None, True),
        ("2026-03-01T23:59:59.999999+00:00", None, True),
        ("2026-03-02T00:00:00+00:00", None, False),
        (None, "2026-03-01T00:00:00+00:00", False),
        (None, "2026-03-01T00:00:00.000001+00:00", True),
        ("2026-03-01T12:00:00+00:00", "2026-03-01T12:00:01+00:00", True),
        ("2026-03-02T01:30:00+02:00", None, True),
    ],
)
def test_a_period_meets_the_days_of_which_it_has_a_part(
    since: str | None, until: str | None, *, meets: bool
) -> None:
    bounds = [None if text is None else datetime.fromisoformat(text) for text in (since, until)]
    assert period_of(*bounds).meets("2026-03-01") is meets
