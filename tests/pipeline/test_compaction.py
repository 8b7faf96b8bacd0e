"""Many small files become few, with the same rows.

Changes to files since then are found.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from sqlalchemy import URL

from history_pipeline.archive import Archive, read_archive
from history_pipeline.archiving import archive_history
from history_pipeline.compaction import compact_archive, scattered
from history_pipeline.content import verify_content
from history_pipeline.errors import ArchiveConflictError, ArchiveDamagedError, ArchiveNotFoundError
from history_pipeline.fingerprint import Fingerprint
from history_pipeline.leftovers import remove_leftovers
from history_pipeline.manifest import DataFile, Kind, live_files
from history_pipeline.verification import verify_archive
from tests import requirements as needs
from tests.pipeline.sample import ended, write_rows


@pytest.fixture
def target(spark: SparkSession, history_url: URL, tmp_path: Path) -> str:
    """An archive of four runs, with five files of two days."""
    target = str(tmp_path / "archive")
    archive_history(spark, history_url, target, run_rows=10)
    return target


def rows_of(spark: SparkSession, target: str) -> list[Row]:
    return sorted(read_archive(spark, target).collect())


def files_of(spark: SparkSession, target: str) -> list[DataFile]:
    return live_files(Archive(spark, target, "bus_events").manifests())


@needs.any_database
def test_a_compaction_leaves_one_file_a_day_with_the_same_rows(
    spark: SparkSession, target: str
) -> None:
    before = rows_of(spark, target)
    assert len(files_of(spark, target)) == 5

    done = compact_archive(spark, target)

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
    assert compact_archive(spark, target).run is None


@needs.any_database
def test_a_day_gets_as_many_files_as_its_size_needs(spark: SparkSession, target: str) -> None:
    before = rows_of(spark, target)
    size = sum(
        file.size_bytes for file in files_of(spark, target) if file.event_date == "2026-03-02"
    )

    compact_archive(spark, target, file_bytes=size // 2 + 1)

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
    spark: SparkSession, target: str
) -> None:
    archive, reading = Archive(spark, target, "bus_events"), read_archive(spark, target)
    rows = rows_of(spark, target)
    compact_archive(spark, target)

    assert sorted(reading.collect()) == rows
    now = datetime.now(UTC)
    remove_leftovers(
        archive, archive.manifests(), now=now + timedelta(hours=23), deleted_runs=set()
    )
    assert len(list(Path(target).rglob("*.parquet"))) == 6
    remove_leftovers(
        archive, archive.manifests(), now=now + timedelta(hours=25), deleted_runs=set()
    )
    assert len(list(Path(target).rglob("*.parquet"))) == 2
    assert rows_of(spark, target) == rows


@needs.any_database
def test_an_archive_goes_on_beside_a_compaction(
    spark: SparkSession, history_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that publishes between takes the number; the compaction takes the next one."""
    publish = Archive.publish
    write_rows(history_url, [ended(50)])

    def after_another_run(self: Archive, manifest: object) -> object:
        monkeypatch.setattr(Archive, "publish", publish)
        archive_history(spark, history_url, target)
        return self.publish(manifest)  # type: ignore[arg-type]  # a Manifest, handed through

    monkeypatch.setattr(Archive, "publish", after_another_run)
    compact_archive(spark, target)

    kinds = [manifest.kind for manifest in Archive(spark, target, "bus_events").manifests()]
    assert kinds == [Kind.ARCHIVE] * 5 + [Kind.COMPACTION]
    assert [row["record_id"] for row in rows_of(spark, target)][-2:] == [40, 50]


@needs.any_database
def test_of_two_compactions_only_one_is_published(
    spark: SparkSession, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, before = Archive.publish, rows_of(spark, target)

    def after_another(self: Archive, manifest: object) -> object:
        monkeypatch.setattr(Archive, "publish", publish)
        compact_archive(spark, target)
        return self.publish(manifest)  # type: ignore[arg-type]  # a Manifest, handed through

    monkeypatch.setattr(Archive, "publish", after_another)
    with pytest.raises(ArchiveConflictError, match="published by another compaction"):
        compact_archive(spark, target)

    assert rows_of(spark, target) == before


@needs.any_database
def test_files_that_were_changed_or_lost_are_found_and_not_compacted(
    spark: SparkSession, target: str
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
        compact_archive(spark, target)
    assert len(Archive(spark, target, "bus_events").manifests()) == 4


@needs.any_database
def test_rows_that_were_swapped_between_files_of_a_day_are_not_compacted_away(
    spark: SparkSession, target: str
) -> None:
    table = Path(target) / "bus_events"
    first, second = [table / file.path for file in files_of(spark, target)][-2:]
    second.write_bytes(first.read_bytes())

    with pytest.raises(ArchiveDamagedError, match="stickybus history verify"):
        compact_archive(spark, target)

    assert len(verify_archive(target).damaged) == 1


def test_where_nothing_was_archived_there_is_nothing_to_compact_or_verify(
    spark: SparkSession, tmp_path: Path
) -> None:
    for job in (compact_archive, verify_content):
        with pytest.raises(ArchiveNotFoundError):
            job(spark, str(tmp_path))
    with pytest.raises(ArchiveNotFoundError):
        verify_archive(str(tmp_path))
