"""Many small files become few, with the same rows.

Changes to files since then are found.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from sqlalchemy import URL

from history_pipeline import (
    Scale,
    archive_history,
    compact_archive,
    read_archive,
    verify_archive,
    verify_content,
)
from history_pipeline.archives.archive import Archive
from history_pipeline.archives.manifest import DataFile, Kind, Manifest, live_files
from history_pipeline.errors import ArchiveConflictError, ArchiveDamagedError, ArchiveNotFoundError
from history_pipeline.rows.fingerprint import Fingerprint
from history_pipeline.upkeep.compaction import scattered
from history_pipeline.upkeep.leftovers import remove_leftovers
from history_pipeline.upkeep.publication import publish
from tests import requirements as needs
from tests.pipeline.archived import no_lock
from tests.pipeline.four_runs import target
from tests.pipeline.sample import ended, write_rows

__all__ = ["target"]


def rows_of(spark: SparkSession, target: str) -> list[Row]:
    return sorted(read_archive(spark, target).collect())


def files_of(spark: SparkSession, target: str) -> list[DataFile]:
    return live_files(Archive(spark, target, "bus_events").manifests())


@needs.any_database
def test_a_compaction_leaves_one_file_a_day_with_the_same_rows(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    before = rows_of(spark, target)
    assert len(files_of(spark, target)) == 5

    done = compact_archive(spark, target, database=history_url)

    assert (done.days, done.files_before, done.files_after, done.entries) == (
        1,
        4,
        1,
        len(before) - 3,
    )
    assert [file.event_date for file in files_of(spark, target)] == ["2026-03-01", "2026-03-02"]
    assert rows_of(spark, target) == before
    last = Archive(spark, target, "bus_events").manifests()[-1]
    assert (last.kind, last.number, len(last.replaces)) == (Kind.COMPACTION, 5, 4)
    assert compact_archive(spark, target, database=history_url).run is None


@needs.any_database
def test_a_day_gets_as_many_files_as_its_size_needs(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    before = rows_of(spark, target)
    size = sum(
        file.size_bytes for file in files_of(spark, target) if file.event_date == "2026-03-02"
    )

    compact_archive(spark, target, database=history_url, scale=Scale(file_bytes=size // 2 + 1))

    assert sorted(file.event_date for file in files_of(spark, target)) == [
        "2026-03-01",
        "2026-03-02",
        "2026-03-02",
    ]
    assert rows_of(spark, target) == before


def test_only_days_with_more_files_than_they_need_are_scattered() -> None:
    def file(day: str, size_bytes: int) -> DataFile:
        return DataFile(f"{day}-{size_bytes}", day, size_bytes, 1, 1, Fingerprint())

    files = [
        file("a", 100),
        file("a", 100),
        file("b", 60),
        file("b", 39),
        file("c", 1),
        file("d", 500),
    ]

    found = scattered(files, 100)

    assert {name: (len(day.files), day.wanted) for name, day in found.items()} == {"b": (2, 1)}


@needs.any_database
def test_replaced_files_stay_for_a_day_for_those_who_read_them(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    archive, reading = Archive(spark, target, "bus_events"), read_archive(spark, target)
    rows = rows_of(spark, target)
    compact_archive(spark, target, database=history_url)

    assert sorted(reading.collect()) == rows
    now = datetime.now(UTC)
    remove_leftovers(archive, archive.manifests(), now=now + timedelta(hours=23), logged_runs=())
    assert len(list(Path(target).rglob("*.parquet"))) == 6
    remove_leftovers(archive, archive.manifests(), now=now + timedelta(hours=25), logged_runs=())
    assert len(list(Path(target).rglob("*.parquet"))) == 2
    assert rows_of(spark, target) == rows


@needs.any_database
def test_an_archive_goes_on_beside_a_compaction(
    spark: SparkSession, history_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that publishes between takes the number; the compaction takes the next one."""
    write_rows(history_url, [ended(50)])

    def after_another_run(*arguments: Any, **options: Any) -> Manifest:
        archive_history(spark, history_url, target)
        return publish(*arguments, **options)

    monkeypatch.setattr("history_pipeline.upkeep.compaction.publish", after_another_run)
    compact_archive(spark, target, database=history_url)

    kinds = [manifest.kind for manifest in Archive(spark, target, "bus_events").manifests()]
    assert kinds == [Kind.ARCHIVE] * 5 + [Kind.COMPACTION]
    assert [row["record_id"] for row in rows_of(spark, target)][-2:] == [40, 50]


@needs.any_database
def test_of_two_compactions_only_one_is_published(
    spark: SparkSession, history_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the loss of the lock with its connection."""
    before = rows_of(spark, target)

    def after_another(*arguments: Any, **options: Any) -> Manifest:
        monkeypatch.setattr("history_pipeline.upkeep.compaction.publish", publish)
        compact_archive(spark, target, database=history_url)
        return publish(*arguments, **options)

    monkeypatch.setattr("history_pipeline.upkeep.compaction.files_lock", no_lock)
    monkeypatch.setattr("history_pipeline.upkeep.compaction.publish", after_another)
    with pytest.raises(ArchiveConflictError, match="published by another compaction"):
        compact_archive(spark, target, database=history_url)

    assert rows_of(spark, target) == before


@needs.any_database
def test_files_that_were_changed_or_lost_are_found_and_not_compacted(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    table = Path(target) / "bus_events"
    sound = verify_archive(target)
    assert (sound.manifests, sound.files, sound.entries, sound.damaged) == (4, 5, 38, [])
    lost, torn, swapped, other, _rest = (table / file.path for file in files_of(spark, target))

    lost.unlink()
    torn.write_bytes(torn.read_bytes()[:-100])
    content = swapped.read_bytes()
    swapped.write_bytes(other.read_bytes())
    other.write_bytes(content)

    damaged = sorted(str(path.relative_to(table)) for path in (lost, torn, swapped, other))
    assert sorted(verify_archive(target).damaged) == damaged
    assert sorted(verify_content(spark, target).damaged) == damaged
    with pytest.raises((ArchiveDamagedError, Exception), match=r"missing|Parquet|parquet"):
        compact_archive(spark, target, database=history_url)
    assert len(Archive(spark, target, "bus_events").manifests()) == 4


@needs.any_database
def test_rows_that_were_swapped_between_files_of_a_day_are_not_compacted_away(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    table = Path(target) / "bus_events"
    first, second = [table / file.path for file in files_of(spark, target)][-2:]
    second.write_bytes(first.read_bytes())

    with pytest.raises(ArchiveDamagedError, match="stickybus history verify"):
        compact_archive(spark, target, database=history_url)

    assert len(verify_archive(target).damaged) == 1


@needs.any_database
def test_where_nothing_was_archived_there_is_nothing_to_compact_or_verify(
    spark: SparkSession, database_url: URL, tmp_path: Path
) -> None:
    with pytest.raises(ArchiveNotFoundError):
        compact_archive(spark, str(tmp_path), database=database_url)
    with pytest.raises(ArchiveNotFoundError):
        verify_content(spark, str(tmp_path))
    with pytest.raises(ArchiveNotFoundError):
        verify_archive(str(tmp_path))
