"""All that the library writes into an archive on this machine is for its owner alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL

from history_pipeline import Scale, archive_history, compact_archive, erase_archived
from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.archives.manifest import live_files
from history_pipeline.archives.rollup_names import rollup_name
from history_pipeline.rollups.kept_rollups import KeptRollups
from history_pipeline.rollups.rollup import ROLLED_ENTRIES
from tests import requirements as needs
from tests.pipeline.arrow_archive import write_archive
from tests.pipeline.sample import sample_history


@pytest.fixture(autouse=True)
def _mask_of_most_machines() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def check_private(target: str) -> None:
    found = {path: S_IMODE(path.lstat().st_mode) for path in Path(target).rglob("*")}
    assert {path: mode for path, mode in found.items() if path.is_file() and mode != 0o600} == {}
    assert {path: mode for path, mode in found.items() if path.is_dir() and mode != 0o700} == {}
    assert any(path.is_file() for path in found)
    assert S_IMODE(Path(target).stat().st_mode) == 0o700


@needs.any_database
def test_what_arrow_writes_is_private(database_url: URL, tmp_path: Path) -> None:
    target, rows = str(tmp_path / "archive"), sample_history()
    write_archive(database_url, target, [rows[:20], rows[20:]])
    erase_archived(target, database=database_url, record_ids=[1])
    storage = ArrowStorage(f"{target}/bus_events")
    files = live_files(ArchiveLog(storage, "bus_events").manifests())
    [day, *_others] = sorted({file.event_date for file in files})

    of_day = [file for file in files if file.event_date == day]

    KeptRollups(storage, "bus_events", ROLLED_ENTRIES).of_day(day, of_day)

    assert storage.names("rollups") == [rollup_name(day, of_day)]
    check_private(target)


@needs.any_database
def test_what_spark_writes_is_private(
    spark: SparkSession, history_url: URL, tmp_path: Path
) -> None:
    target = str(tmp_path / "archive")
    archive_history(spark, history_url, target, scale=Scale(run_rows=10))
    check_private(target)

    assert compact_archive(spark, target, database=history_url).run
    check_private(target)
