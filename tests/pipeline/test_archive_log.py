"""The database holds the log of an archive; the files of manifests are copies of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL

from history_pipeline import (
    Scale,
    archive_history,
    audit,
    compact_archive,
    read_history,
    verify_archive,
    verify_content,
)
from history_pipeline.archives.archive import Archive
from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.archives.manifest import Kind, Manifest, decoded, label, live_files
from history_pipeline.archives.storage import LocalStorage
from history_pipeline.errors import ArchiveConflictError, ArchiveDamagedError
from history_pipeline.upkeep.leftovers import remove_leftovers
from history_pipeline.upkeep.recovery import recovered
from sql.database import Database
from sql.statements.archives import DELETED, PUBLISHED, Archives
from tests import requirements as needs
from tests.pipeline.archived import execute, log, manifests
from tests.pipeline.arrow_archive import write_archive
from tests.pipeline.manifest_files import FROZEN, MIDNIGHT, changed, two_runs
from tests.pipeline.sample import ended, sample_history, write_rows

SAMPLE = len(sample_history())
WITHOUT_STATE = "archive = NULL, kind = NULL, state = NULL, manifest = NULL"
"""What a version that knew no log has left in the columns which it did not know."""


def all_files(target: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(target.rglob("*")) if path.is_file()}


def archived(spark: SparkSession, target: Path) -> list[int]:
    archive = Archive(spark, str(target), "bus_events")
    rows = archive.read(live_files(archive.manifests())).select("record_id").collect()
    return sorted(row["record_id"] for row in rows)


def test_each_run_has_a_row_with_the_bytes_of_its_manifest(
    spark: SparkSession, history_url: URL, target_path: Path
) -> None:
    archive_history(spark, history_url, str(target_path), scale=Scale(run_rows=20))
    compact_archive(spark, str(target_path), database=history_url)

    rows, runs = log(history_url), manifests(spark, target_path)

    assert [(row.kind, row.state) for row in rows] == [
        ("archive", DELETED),
        ("archive", DELETED),
        ("compaction", PUBLISHED),
    ]
    assert [row.run for row in rows] == [manifest.run for manifest in runs]
    assert {row.archive for row in rows} == {runs[0].archive}
    database = Database(history_url)
    for manifest in runs:
        logged = database.fetch(partial(Archives().manifest, run=manifest.run))
        assert (target_path / "bus_events" / manifest.path).read_bytes() == logged
    database.close()


@pytest.mark.parametrize(
    "lose",
    [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:300])],
    ids=["missing", "torn"],
)
@needs.any_database
def test_a_manifest_that_is_lost_is_told_and_written_anew_by_the_next_run(
    spark: SparkSession, history_url: URL, target_path: Path, lose: Callable[[Path], object]
) -> None:
    for path in two_runs(spark, history_url, target_path):
        before = all_files(target_path)
        lose(path)

        for verify in (
            verify_archive(str(target_path), database=history_url),
            verify_content(spark, str(target_path), database=history_url),
        ):
            assert verify.lost == [f"manifests/{path.name}"]
            assert (verify.damaged, verify.entries) == ([], SAMPLE)
        with pytest.raises(ArchiveDamagedError, match=r"of run .* is missing.*writes it anew"):
            audit(spark, url=history_url, archive=str(target_path))
        archive_history(spark, history_url, str(target_path))

        assert all_files(target_path) == before
        assert verify_archive(str(target_path), database=history_url).lost == []


@needs.any_database
def test_a_compaction_writes_a_lost_manifest_anew(
    spark: SparkSession, history_url: URL, target_path: Path
) -> None:
    two_runs(spark, history_url, target_path)[0].unlink()
    compact_archive(spark, str(target_path), database=history_url)
    assert len(manifests(spark, target_path)) == 2
    assert archived(spark, target_path) == [row["record_id"] for row in sample_history()]


@needs.any_database
def test_an_older_copy_of_the_directory_is_an_error_and_nothing_is_swept_or_deleted(
    spark: SparkSession, history_url: URL, target_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = two_runs(spark, history_url, target_path)[1]
    run = label(path.read_bytes()).run
    path.unlink()
    shutil.rmtree(target_path / "bus_events/data" / run)
    write_rows(history_url, [ended(60)])
    monkeypatch.setattr(remove_leftovers, "__kwdefaults__", {"kept": timedelta(0)})
    before = all_files(target_path)

    for start in (
        lambda: archive_history(spark, history_url, str(target_path)),
        lambda: compact_archive(spark, str(target_path), database=history_url),
    ):
        with pytest.raises(ArchiveDamagedError, match=f"data of run {run}.*an older copy"):
            start()
    found = verify_archive(str(target_path), database=history_url)

    assert found.lost == ["manifests/00000002.json"]
    assert all(run in path for path in found.damaged)
    assert found.damaged
    assert all_files(target_path) == before
    assert read_history(spark, history_url).count() == 1


@needs.any_database
def test_a_copy_that_was_archived_into_elsewhere_is_an_older_one(
    spark: SparkSession, history_url: URL, target_path: Path
) -> None:
    archive_history(spark, history_url, str(target_path), before=MIDNIGHT)
    copied = target_path.with_name("copy")
    shutil.copytree(target_path, copied)
    archive_history(spark, history_url, str(copied))
    write_rows(history_url, [ended(60)])

    with pytest.raises(ArchiveDamagedError, match="an older copy"):
        archive_history(spark, history_url, str(target_path))

    assert verify_archive(str(copied), database=history_url).lost == []


@needs.any_database
def test_the_old_name_of_an_archive_that_was_moved_is_refused_with_what_to_do(
    database_url: URL, target_path: Path
) -> None:
    write_archive(database_url, str(target_path), [[ended(1)]])
    moved = target_path.rename(target_path.with_name("moved"))
    database = Database(database_url)
    try:
        with pytest.raises(ArchiveDamagedError, match=r"moved away.*where it is now, or another"):
            recovered(ArchiveLog(ArrowStorage(f"{target_path}/bus_events"), "bus_events"), database)
    finally:
        database.close()
    assert verify_archive(str(moved), database=database_url).damaged == []


@needs.any_database
def test_an_older_copy_of_the_database_is_an_error_and_nothing_is_swept_or_deleted(
    spark: SparkSession, history_url: URL, target_path: Path
) -> None:
    two_runs(spark, history_url, target_path)
    run = log(history_url)[1].run
    execute(history_url, "DELETE FROM queue_archives WHERE run = :run", run=run)
    write_rows(history_url, [row for row in sample_history() if row["record_id"] > 3])
    left, before = read_history(spark, history_url).count(), all_files(target_path)

    for start in (
        lambda: archive_history(spark, history_url, str(target_path)),
        lambda: compact_archive(spark, str(target_path), database=history_url),
        lambda: verify_archive(str(target_path), database=history_url),
        lambda: audit(spark, url=history_url, archive=str(target_path)),
    ):
        with pytest.raises(ArchiveConflictError, match=f"does not know run {run}.*older copy"):
            start()

    assert all_files(target_path) == before
    assert read_history(spark, history_url).count() == left


@needs.any_database
def test_no_sweep_removes_files_of_a_run_that_the_log_has(
    spark: SparkSession, history_url: URL, target_path: Path
) -> None:
    two_runs(spark, history_url, target_path)[1].unlink()
    archive = Archive(spark, str(target_path), "bus_events")
    later, runs = datetime.now(UTC) + timedelta(days=2), [row.run for row in log(history_url)]
    data = sorted((target_path / "bus_events/data").rglob("*"))

    remove_leftovers(archive, archive.manifests(), now=later, logged_runs=runs)
    assert sorted((target_path / "bus_events/data").rglob("*")) == data
    remove_leftovers(archive, archive.manifests(), now=later, logged_runs=[])
    assert sorted((target_path / "bus_events/data").rglob("*")) != data


@pytest.mark.parametrize("sample", ["format-1", "format-2", "format-3"])
def test_an_archive_of_an_earlier_version_is_taken_over_by_the_first_run(
    spark: SparkSession, database_url: URL, target_path: Path, sample: str
) -> None:
    shutil.copytree(FROZEN / sample, target_path)
    earlier = manifests(spark, target_path)
    for manifest in earlier:
        if manifest.kind is Kind.ARCHIVE:
            enter_as_before(database_url, target_path, manifest)
    write_rows(database_url, [ended(60)])
    with pytest.raises(ArchiveConflictError, match="`stickybus history archive` first"):
        compact_archive(spark, str(target_path), database=database_url)

    archive_history(spark, database_url, str(target_path))

    rows = log(database_url)
    assert [row.run for row in rows] == [manifest.run for manifest in manifests(spark, target_path)]
    assert [row.state for row in rows] == [DELETED, DELETED, PUBLISHED, DELETED]
    assert {row.archive for row in rows} == {earlier[0].archive}
    assert [manifest.format for manifest in manifests(spark, target_path)][-1] == 4
    for manifest in manifests(spark, target_path):
        path = target_path / "bus_events" / manifest.path
        content = path.read_bytes()
        path.unlink()
        archive_history(spark, database_url, str(target_path))
        assert path.read_bytes() == content
    assert len(archived(spark, target_path)) == 38


def enter_as_before(url: URL, target: Path, manifest: Manifest) -> None:
    """Enter a deleted run as versions did that knew no log, the first one without its manifest."""
    execute(
        url,
        "INSERT INTO queue_archives (run, table_name, target, first_id, last_id, before_date, "
        "entries, deleted_date) VALUES (:run, 'bus_events', :target, :first, :last, :date, "
        ":entries, :date)",
        run=manifest.run,
        target=f"{target}/bus_events",
        first=manifest.first_id,
        last=manifest.last_id,
        date="2026-11-24 22:24:05.503288",
        entries=manifest.fingerprint.rows,
    )


@needs.any_database
def test_a_run_of_an_earlier_version_that_is_lost_stops_everybody_and_its_files_stay(
    spark: SparkSession, history_url: URL, target_path: Path
) -> None:
    two_runs(spark, history_url, target_path)[1].unlink()
    execute(history_url, f"UPDATE queue_archives SET {WITHOUT_STATE}")
    write_rows(history_url, [ended(60)])
    before = all_files(target_path)

    for start in (
        lambda: archive_history(spark, history_url, str(target_path)),
        lambda: verify_archive(str(target_path), database=history_url),
        lambda: audit(spark, url=history_url, archive=str(target_path)),
    ):
        with pytest.raises(
            ArchiveDamagedError,
            match=r"00000002\.json: the manifest of run .* is missing.*newest copy",
        ):
            start()
    assert all_files(target_path) == before


def stopped_before_the_file(
    spark: SparkSession, url: URL, target: Path, monkeypatch: pytest.MonkeyPatch
) -> bytes:
    """Archive as far as the row of the manifest, and return its bytes."""
    written = list[bytes]()

    def stop(_self: LocalStorage, _path: str, content: bytes) -> None:
        written.append(content)
        raise InterruptedError

    with monkeypatch.context() as changing:
        changing.setattr(LocalStorage, "put", stop)
        with pytest.raises(InterruptedError):
            archive_history(spark, url, str(target))
    return written[0]


def test_a_run_that_an_earlier_version_has_published_and_not_deleted_is_finished(
    spark: SparkSession, history_url: URL, target_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = stopped_before_the_file(spark, history_url, target_path, monkeypatch)
    execute(history_url, "DELETE FROM queue_archives")
    path = target_path / "bus_events/manifests/00000001.json"
    path.write_bytes(changed(content, format=3))

    done = archive_history(spark, history_url, str(target_path))

    assert (done.finished, done.entries) == (SAMPLE, 0)
    [row] = log(history_url)
    assert (row.state, row.entries, row.manifest_number) == (DELETED, SAMPLE, 1)
    assert read_history(spark, history_url).count() == 0


@needs.any_database
def test_an_earlier_version_that_takes_the_number_of_a_killed_run_goes_before_it(
    spark: SparkSession, history_url: URL, target_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During a rolling upgrade: the earlier one sees files only, and gives the number again."""
    content = stopped_before_the_file(spark, history_url, target_path, monkeypatch)
    other = decoded(content, "it").run.replace("Z-", "Z-0")[:40]
    path = target_path / "bus_events/manifests/00000001.json"
    path.write_bytes(changed(content, format=3, run=other, archive=other))

    done = archive_history(spark, history_url, str(target_path))

    assert done.finished == SAMPLE
    assert [row.run for row in log(history_url)] == [other]
    assert archived(spark, target_path) == [row["record_id"] for row in sample_history()]


@needs.any_database
def test_other_rows_than_an_earlier_version_has_archived_are_not_deleted(
    spark: SparkSession, database_url: URL, target_path: Path
) -> None:
    """The archive is another database's: the same ids, and other entries."""
    shutil.copytree(FROZEN / "format-3", target_path)
    write_rows(database_url, [row | {"class_name": "Other"} for row in sample_history()])

    with pytest.raises(
        ArchiveConflictError, match="Other content than in the archive has entries 1, 2, 3"
    ):
        archive_history(spark, database_url, str(target_path))

    assert read_history(spark, database_url).count() == SAMPLE
    assert log(database_url) == []


@needs.any_database
def test_the_file_of_another_process_of_an_earlier_version_is_not_replaced(
    spark: SparkSession, history_url: URL, target_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = stopped_before_the_file(spark, history_url, target_path, monkeypatch)
    execute(history_url, "DELETE FROM queue_archives")
    path = target_path / "bus_events/manifests/00000001.json"
    other = changed(content, format=3, run="other", archive="other")
    settle = LocalStorage.settle

    def meanwhile(self: LocalStorage, paths: Any) -> None:
        path.write_bytes(other)
        settle(self, paths)

    monkeypatch.setattr(LocalStorage, "settle", meanwhile)
    with pytest.raises(ArchiveConflictError, match="an earlier version of this library meanwhile"):
        archive_history(spark, history_url, str(target_path))

    assert path.read_bytes() == other
    assert msgspec.json.decode(other)["run"] == "other"
    assert read_history(spark, history_url).count() == SAMPLE
