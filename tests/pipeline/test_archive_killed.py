"""A real process is killed at each step of its work on an archive, and started again.

No row is lost, and none is there twice.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from sqlalchemy import URL

from history_pipeline import (
    Scale,
    archive_history,
    compact_archive,
    expire_archive,
    read_archive,
    read_history,
    replay_archive,
    verify_archive,
)
from history_pipeline.archives.archive import Archive
from history_pipeline.archives.manifest import live_files
from queue_core.reading.live_entries import Entries
from queue_core.storage.filter import Filter
from sql.database import Database
from sql.statements.archives import Archives
from stickybus import PersistentBus
from tests import requirements as needs
from tests.pipeline.killed import EXPIRED_BEFORE
from tests.pipeline.killing import CUTS_SPARK, killed
from tests.pipeline.sample import sample_history

BEFORE_THE_ROW = ("when files are written", "before the row is committed")
SAMPLE = len(sample_history())
REPLAYABLE = sum(row["processing_state"] != "REAPED" for row in sample_history()) - 1
"""All but those whose chain has gone on, and the one that was tried again by hand."""


def in_archive(spark: SparkSession, target: str) -> list[Row]:
    archive = Archive(spark, target, "bus_events")
    return sorted(archive.read(live_files(archive.manifests())).collect())


def entered(url: URL) -> int:
    """How many runs the log of the archive has."""
    database = Database(url)
    rows = database.fetch(lambda connection: Archives().entered(connection, "bus_events"))
    database.close()
    return len(rows)


def check_archive(spark: SparkSession, url: URL, target: str, *, deleted: bool | None) -> None:
    """Whatever was done so far, each row is in the archive once, in history once, or both.

    Then it is started again.
    """
    left, found = sorted(read_history(spark, url).collect()), in_archive(spark, target)
    assert len(left) == (0 if deleted else SAMPLE)
    assert len(found) in {0, SAMPLE}
    expected, published = left or found, entered(url)

    again = archive_history(spark, url, target)

    assert in_archive(spark, target) == expected
    assert len(expected) == SAMPLE
    assert read_history(spark, url).count() == 0
    if published:
        assert (again.entries, again.finished) == (0, 0 if deleted else SAMPLE)
    else:
        assert (again.entries, again.finished) == (SAMPLE, 0)


@pytest.mark.parametrize(
    "point",
    [
        "before the manifest is written",
        "when the manifest is written",
        "while rows are deleted",
        "when rows are deleted",
    ],
)
def test_an_archive_that_was_killed_is_finished_by_the_next(
    spark: SparkSession, history_url: URL, tmp_path: Path, point: str
) -> None:
    target = str(tmp_path / "archive")
    killed(spark, point, "archive", history_url, target)
    check_archive(spark, history_url, target, deleted=point == "when rows are deleted")


@needs.any_database
@pytest.mark.parametrize(
    "point",
    [
        CUTS_SPARK,
        "when files are written",
        "before the row is committed",
        "while the manifest is written",
        "before the deletion is committed",
    ],
)
def test_an_archive_that_was_killed_before_it_had_deleted_anything_loses_and_doubles_no_row(
    spark: SparkSession, history_url: URL, tmp_path: Path, point: str
) -> None:
    target = str(tmp_path / "archive")
    killed(spark, point, "archive", history_url, target)
    check_archive(spark, history_url, target, deleted=False)


@needs.any_database
@pytest.mark.parametrize(
    "point",
    [
        CUTS_SPARK,
        "when files are written",
        "before the row is committed",
        "before the manifest is written",
        "while the manifest is written",
        "when the manifest is written",
    ],
)
def test_a_compaction_that_was_killed_has_changed_no_row_and_is_done_by_the_next(
    spark: SparkSession, history_url: URL, tmp_path: Path, point: str
) -> None:
    target = str(tmp_path / "archive")
    archive_history(spark, history_url, target, scale=Scale(run_rows=10))
    before = in_archive(spark, target)

    killed(spark, point, "compact", history_url, target)

    assert in_archive(spark, target) == before
    done = compact_archive(spark, target, database=history_url)
    assert (done.run is None) == (point not in {CUTS_SPARK, *BEFORE_THE_ROW})
    assert in_archive(spark, target) == before
    assert len(live_files(Archive(spark, target, "bus_events").manifests())) == 2


@needs.any_database
@pytest.mark.parametrize(
    "point",
    [
        "before the row is committed",
        "before the manifest is written",
        "while the manifest is written",
        "when the manifest is written",
    ],
)
def test_an_expiry_that_was_killed_has_taken_whole_days_or_none_and_is_done_by_the_next(
    spark: SparkSession, history_url: URL, tmp_path: Path, point: str
) -> None:
    target = str(tmp_path / "archive")
    archive_history(spark, history_url, target)
    archive, before = Archive(spark, target, "bus_events"), in_archive(spark, target)
    first_day, second_day = live_files(archive.manifests())
    assert first_day.event_date < second_day.event_date == EXPIRED_BEFORE.date().isoformat()

    killed(spark, point, "expire", history_url, target)

    published = point == "when the manifest is written"
    assert live_files(archive.manifests()) == [*([] if published else [first_day]), second_day]
    done = expire_archive(spark, target, database=history_url, before=EXPIRED_BEFORE)
    assert (done.run is None) == (point not in BEFORE_THE_ROW)
    assert live_files(archive.manifests()) == [second_day]
    left = in_archive(spark, target)
    assert left == [row for row in before if row["record_id"] >= second_day.first_id]
    assert len(left) == second_day.fingerprint.rows
    found = verify_archive(target, database=history_url)
    assert (found.damaged, found.lost, found.entries) == ([], [], len(left))


def parents(url: URL) -> list[int | None]:
    """What the live entries repeat."""
    bus = PersistentBus(url)
    found = Entries(bus._engine.store, None).find(Filter())
    bus.close()
    return [entry.replay_of for entry in found]


def test_a_replay_that_was_killed_posts_each_entry_once(
    spark: SparkSession, history_url: URL, tmp_path: Path
) -> None:
    target = str(tmp_path / "archive")
    archive_history(spark, history_url, target)
    killed(spark, "before a batch is committed", "replay", history_url, target)
    assert len(parents(history_url)) == 10

    done = replay_archive(spark, history_url, target, where="true", post=True)

    assert (done.posted, done.entries) == (REPLAYABLE - 10, REPLAYABLE - 10)
    assert len(parents(history_url)) == len(set(parents(history_url))) == REPLAYABLE
    assert read_archive(spark, target).count() == SAMPLE
