"""An archive that fails, or meets another one: nothing is deleted that is not archived."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL

from history_pipeline import archive_history
from history_pipeline.archives.archive import Archive
from history_pipeline.archives.manifest import Manifest
from history_pipeline.archives.storage import LocalStorage
from history_pipeline.errors import ArchiveConflictError, ArchiveDamagedError, ArchiveMismatchError
from history_pipeline.upkeep.archiving import Archiver
from history_pipeline.upkeep.deletion import locked_history
from history_pipeline.upkeep.leftovers import remove_leftovers
from queue_core.errors import LifecycleError
from sql.database import Database
from stickybus import PersistentBus
from tests import requirements as needs
from tests.conftest import NewDatabase
from tests.pipeline.archived import (
    SAMPLE,
    StoppedError,
    after,
    archived,
    execute,
    manifests,
    rows_of,
    stop,
)
from tests.pipeline.sample import START, TABLE, ended, sample_history, write_rows


def test_a_row_that_was_committed_late_rolls_the_deletion_back_and_is_named(
    spark: SparkSession, history_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows_of(spark, history_url)
    after("copy", lambda: write_rows(history_url, [ended(13)]), monkeypatch)

    with pytest.raises(
        ArchiveMismatchError, match=r"Not archived: entries 13\. Nothing was deleted"
    ) as caught:
        archive_history(spark, history_url, target)

    assert (caught.value.archived, caught.value.found) == (SAMPLE, SAMPLE + 1)
    assert len(rows_of(spark, history_url)) == SAMPLE + 1
    again = archive_history(spark, history_url, target)
    assert (again.finished, again.entries) == (SAMPLE, 1)
    assert rows_of(spark, history_url) == []
    assert len(archived(spark, target)) == SAMPLE + 1
    assert set(archived(spark, target)) > set(before)


def test_a_row_that_is_gone_rolls_the_deletion_back_and_stays_archived(
    spark: SparkSession, history_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows_of(spark, history_url)
    after(
        "publish",
        lambda: execute(history_url, f"DELETE FROM {TABLE} WHERE record_id = 5"),
        monkeypatch,
    )

    with pytest.raises(ArchiveMismatchError, match="37 rows of history would be deleted"):
        archive_history(spark, history_url, target)

    assert len(rows_of(spark, history_url)) == SAMPLE - 1
    assert archive_history(spark, history_url, target).finished == SAMPLE - 1
    assert archived(spark, target) == before
    assert rows_of(spark, history_url) == []


def test_rows_that_agree_in_number_and_sum_of_ids_with_the_archived_ones_are_not_deleted(
    spark: SparkSession, history_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows_of(spark, history_url)

    def swap() -> None:
        execute(history_url, f"DELETE FROM {TABLE} WHERE record_id IN (11, 14)")
        write_rows(history_url, [ended(12), ended(13)])

    after("publish", swap, monkeypatch)

    with pytest.raises(
        ArchiveMismatchError, match=r"Not archived: entries 12, 13\. Nothing was deleted"
    ) as caught:
        archive_history(spark, history_url, target)

    assert (caught.value.archived, caught.value.found) == (SAMPLE, SAMPLE)
    assert len(rows_of(spark, history_url)) == SAMPLE
    again = archive_history(spark, history_url, target)
    assert (again.finished, again.entries) == (SAMPLE - 2, 2)
    assert rows_of(spark, history_url) == []
    assert len(archived(spark, target)) == SAMPLE + 2
    assert set(archived(spark, target)) > set(before)


@needs.any_database
def test_files_that_are_not_what_was_written_are_not_published(
    spark: SparkSession, history_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = LocalStorage.sizes

    def damaged(self: LocalStorage, folder: str) -> dict[str, int]:
        first, *_others = sorted((Path(target) / "bus_events" / folder).rglob("*.parquet"))
        first.unlink()
        return sizes(self, folder)

    monkeypatch.setattr(LocalStorage, "sizes", damaged)
    with pytest.raises(
        ArchiveDamagedError, match="38 rows were written, but the 35 rows read back differ"
    ):
        archive_history(spark, history_url, target)

    assert archived(spark, target) == []
    assert len(rows_of(spark, history_url)) == SAMPLE


@needs.any_database
def test_files_that_no_manifest_names_are_not_read_and_are_removed_after_a_day(
    spark: SparkSession, history_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    after("copy", stop, monkeypatch)
    with pytest.raises(StoppedError):
        archive_history(spark, history_url, target)
    archive, [left] = (
        Archive(spark, target, "bus_events"),
        list((Path(target) / "bus_events/data").iterdir()),
    )

    archive_history(spark, history_url, target)

    assert len(archived(spark, target)) == SAMPLE
    now = datetime.now(UTC)
    remove_leftovers(archive, archive.manifests(), now=now + timedelta(hours=23), logged_runs=())
    assert left.exists()
    remove_leftovers(archive, archive.manifests(), now=now + timedelta(hours=25), logged_runs=())
    assert not left.exists()
    assert len(archived(spark, target)) == SAMPLE


@needs.any_database
def test_an_archive_of_another_database_is_refused_and_nothing_deleted(
    spark: SparkSession, history_url: URL, new_database: NewDatabase, target: str
) -> None:
    archive_history(spark, history_url, target)
    other = new_database("other")
    write_rows(other, sample_history())

    with pytest.raises(ArchiveConflictError, match="does not know run") as caught:
        archive_history(spark, other, target)

    assert "name another directory" in str(caught.value)
    assert len(rows_of(spark, other)) == SAMPLE


@needs.any_database
def test_a_database_that_has_moved_goes_on_with_its_archive(
    spark: SparkSession,
    history_url: URL,
    tmp_path: Path,
    target: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Even between the publication of a run and its deletion: its rows are the proof."""
    archive_history(spark, history_url, target, before=START + timedelta(seconds=5))
    after("publish", stop, monkeypatch)
    with pytest.raises(StoppedError):
        archive_history(spark, history_url, target)
    moved = tmp_path / "moved.db"
    shutil.move(str(history_url.database), moved)

    assert archive_history(spark, f"sqlite:///{moved}", target).finished > 0

    assert len(archived(spark, target)) == SAMPLE


def test_one_archive_or_truncation_at_a_time(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    database, bus = Database(history_url), PersistentBus(history_url)
    with locked_history(database, "bus_events"):
        with pytest.raises(ArchiveConflictError, match="under way"):
            archive_history(spark, history_url, target)
        with pytest.raises(LifecycleError):
            bus.truncate_history()
    database.close()
    bus.close()

    assert archive_history(spark, history_url, target).entries == SAMPLE


@needs.any_database
def test_of_two_runs_that_read_the_same_only_one_is_published(
    spark: SparkSession, history_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the loss of the lock with its connection."""
    taken = list[Manifest]()
    publish = Archiver.publish

    def twice(self: Archiver, manifest: Manifest) -> Manifest:
        taken.append(publish(self, msgspec.structs.replace(manifest, run="another")))
        return publish(self, manifest)

    monkeypatch.setattr(Archiver, "publish", twice)
    with pytest.raises(ArchiveConflictError, match="published by another archive"):
        archive_history(spark, history_url, target)

    assert [manifest.run for manifest in manifests(spark, target)] == ["another"]
    assert len(rows_of(spark, history_url)) == SAMPLE


@needs.any_database
def test_a_run_whose_files_are_gone_is_not_published(
    spark: SparkSession, history_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a copy of more than a day, if a compaction has tidied up meanwhile."""
    publish = Archiver.publish

    def too_late(self: Archiver, manifest: Manifest) -> Manifest:
        self.archive.storage.remove(manifest.files[0].path)
        return publish(self, manifest)

    monkeypatch.setattr(Archiver, "publish", too_late)
    with pytest.raises(ArchiveDamagedError, match=r"is gone.*Nothing of this run was published"):
        archive_history(spark, history_url, target)

    assert manifests(spark, target) == []
    assert len(rows_of(spark, history_url)) == SAMPLE


@needs.server
def test_nothing_is_deleted_once_the_lock_is_lost_with_its_connection(
    spark: SparkSession,
    history_url: URL,
    database_name: str,
    target: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kill = {
        # Other databases of the server have advisory locks, too.
        "postgresql": (
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks JOIN pg_database ON database = "
            "oid WHERE locktype = 'advisory' AND datname = current_database()"
        ),
        "mariadb": f"KILL CONNECTION (SELECT IS_USED_LOCK('{history_url.database}:{TABLE}'))",
        "mysql": f"KILL CONNECTION IS_USED_LOCK('{history_url.database}:{TABLE}')",
    }
    after("publish", lambda: execute(history_url, kill[database_name]), monkeypatch)
    with pytest.raises(Exception, match=r"(?i)connection|gone away|terminating"):
        archive_history(spark, history_url, target)

    assert len(rows_of(spark, history_url)) == SAMPLE
    assert archive_history(spark, history_url, target).finished == SAMPLE
    assert len(archived(spark, target)) == SAMPLE
