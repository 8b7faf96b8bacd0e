"""Old days leave an archive: at once for readers, and a day later as files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL

from history_pipeline import (
    archive_history,
    compact_archive,
    expire_archive,
    read_archive,
    verify_archive,
)
from history_pipeline.archives.archive import Archive
from history_pipeline.archives.manifest import Kind, Manifest, live_files
from history_pipeline.archives.rollup_names import rollup_name, rollup_names
from history_pipeline.archives.storage import LocalStorage
from history_pipeline.errors import ArchiveConflictError, ArchiveNotFoundError
from history_pipeline.rows.fingerprint import joined
from history_pipeline.upkeep.leftovers import remove_leftovers
from history_pipeline.upkeep.publication import publish
from queue_core.errors import NaiveDateTimeError
from tests import requirements as needs
from tests.pipeline.archived import log, no_lock
from tests.pipeline.four_runs import target
from tests.pipeline.sample import ended, sample_history, write_rows

__all__ = ["target"]

SAMPLE = len(sample_history())
FIRST_DAY = 3
"""Rows of the sample that ended on 1 March; all others ended on 2 March."""
MIDDAY = datetime(2026, 3, 2, 12, tzinfo=UTC)


def ids(spark: SparkSession, target: str) -> list[int]:
    return sorted(row["record_id"] for row in read_archive(spark, target).collect())


@needs.any_database
def test_days_that_were_over_before_a_date_go_and_their_files_a_day_later(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    archive, before = Archive(spark, target, "bus_events"), ids(spark, target)
    [old, *_others] = live_files(archive.manifests())

    done = expire_archive(spark, target, database=history_url, before=MIDDAY)

    assert (done.days, done.first_day, done.last_day) == (1, "2026-03-01", "2026-03-01")
    assert (done.entries, done.files, done.size_bytes) == (FIRST_DAY, 1, old.size_bytes)
    assert ids(spark, target) == before[FIRST_DAY:]
    manifest = archive.manifests()[-1]
    assert (manifest.kind, manifest.replaces, manifest.files) == (Kind.EXPIRY, [old.path], [])
    assert manifest.expired == joined([old.fingerprint])
    row = log(history_url)[-1]
    assert (row.run, row.kind, row.entries) == (done.run, "expiry", FIRST_DAY)
    assert verify_archive(target, database=history_url).entries == SAMPLE - FIRST_DAY

    [left] = rollup_names(live_files(archive.manifests()))
    for rollup in (rollup_name("2026-03-01", [old]), left):
        archive.storage.put(f"rollups/{rollup}", b"")
    now, runs = datetime.now(UTC), [row.run for row in log(history_url)]
    path = Path(target) / "bus_events" / old.path
    for hours, there in ((23, True), (25, False)):
        later = now + timedelta(hours=hours)
        remove_leftovers(archive, archive.manifests(), now=later, logged_runs=runs)
        assert path.exists() == there
    assert archive.storage.names("rollups") == [left]
    assert expire_archive(spark, target, database=history_url, before=MIDDAY).run is None
    assert verify_archive(target, database=history_url).damaged == []


@needs.any_database
def test_an_archive_goes_on_when_all_its_days_have_expired(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    expire_archive(spark, target, database=history_url, before=datetime.now(UTC))
    assert ids(spark, target) == []
    write_rows(history_url, [ended(41)])

    assert archive_history(spark, history_url, target).entries == 1

    assert ids(spark, target) == [41]
    assert compact_archive(spark, target, database=history_url).run is None


@needs.any_database
def test_a_compaction_that_has_read_what_expires_meanwhile_is_not_published(
    spark: SparkSession, history_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the loss of the lock with its connection."""

    def after_an_expiry(*arguments: Any, **options: Any) -> Manifest:
        expire_archive(spark, target, database=history_url, before=datetime.now(UTC))
        return publish(*arguments, **options)

    monkeypatch.setattr("history_pipeline.upkeep.compaction.files_lock", no_lock)
    monkeypatch.setattr("history_pipeline.upkeep.compaction.publish", after_an_expiry)
    with pytest.raises(ArchiveConflictError, match="published by another expiry"):
        compact_archive(spark, target, database=history_url)

    assert ids(spark, target) == []


@needs.any_database
def test_nothing_expires_while_a_run_has_rows_left_in_history(
    spark: SparkSession, history_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_arguments: object) -> None:
        raise InterruptedError

    write_rows(history_url, [ended(41)])
    with monkeypatch.context() as changing:
        changing.setattr(LocalStorage, "put", stop)
        with pytest.raises(InterruptedError):
            archive_history(spark, history_url, target)

    with pytest.raises(ArchiveConflictError, match="`stickybus history archive` first"):
        expire_archive(spark, target, database=history_url, before=MIDDAY)

    assert archive_history(spark, history_url, target).finished == 1
    assert expire_archive(spark, target, database=history_url, before=MIDDAY).entries == FIRST_DAY


@needs.any_database
def test_an_expiry_needs_an_archive_and_a_date_with_a_time_zone(
    spark: SparkSession, database_url: URL, tmp_path: Path
) -> None:
    with pytest.raises(ArchiveNotFoundError):
        expire_archive(spark, str(tmp_path), database=database_url, before=MIDDAY)
    with pytest.raises(NaiveDateTimeError):
        expire_archive(
            spark, str(tmp_path), database=database_url, before=MIDDAY.replace(tzinfo=None)
        )
