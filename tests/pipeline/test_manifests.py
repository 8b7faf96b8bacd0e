"""A manifest that is missing or changed is an error, and nothing that it named is removed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL, text

from history_pipeline import (
    archive_history,
    audit,
    find_archived_tasks,
    read_archive,
    verify_archive,
    verify_content,
)
from history_pipeline.archives import manifest as manifests
from history_pipeline.errors import ArchiveDamagedError
from history_pipeline.rows.columns import HISTORY_COLUMNS, ArchivedColumn
from history_pipeline.rows.kind import ENTRIES, TASKS
from sql.database import Database
from tests import requirements as needs
from tests.pipeline.manifest_files import FROZEN, FROZEN_TASKS, changed, two_runs
from tests.pipeline.sample import ended, write_rows
from tests.pipeline.tasks import TABLE, sample_tasks


@pytest.mark.parametrize("sample", sorted(path.name for path in FROZEN.iterdir()))
def test_an_archive_that_any_version_wrote_verifies_for_ever(
    spark: SparkSession, sample: str
) -> None:
    for found in (
        verify_content(spark, str(FROZEN / sample)),
        verify_archive(str(FROZEN / sample)),
    ):
        assert (found.damaged, found.manifests, found.files, found.entries) == ([], 3, 2, 37)
    assert found.without_sha256 == (2 if sample == "format-1" else 0)


@pytest.mark.parametrize("sample", sorted(path.name for path in FROZEN_TASKS.iterdir()))
def test_an_archive_of_tasks_that_any_version_wrote_verifies_for_ever(
    spark: SparkSession, sample: str
) -> None:
    target, expected = str(FROZEN_TASKS / sample), {one["record_id"]: one for one in sample_tasks()}
    erased: dict[str, Any] = {"value_json": None, "value_bytes": None}
    for record_id, error in ((5, "TimeoutError:"), (7, None)):
        expected[record_id] |= erased | {"err": error}

    for found in (
        verify_content(spark, target, table=TABLE),
        verify_archive(target, table=TABLE),
    ):
        assert (found.damaged, found.manifests, found.entries) == ([], 4, len(expected))
        assert found.without_sha256 == 0
    tasks = [msgspec.structs.asdict(one) for one in find_archived_tasks(target)]
    assert {one["record_id"]: one for one in tasks} == {
        number: row | {"not_archived": ()} for number, row in expected.items()
    }
    rows = read_archive(spark, target, TABLE).select(*TASKS.names).toArrow().to_pylist()
    assert {row["record_id"]: row for row in rows} == expected


@needs.any_database
def test_a_manifest_that_was_changed_is_told_by_the_next_one_or_by_the_database(
    spark: SparkSession, history_url: URL, target_path: Path
) -> None:
    for path in two_runs(spark, history_url, target_path):
        former = path.read_bytes()
        path.write_bytes(changed(former, before=datetime(2026, 3, 3, tzinfo=UTC)))
        with pytest.raises(
            ArchiveDamagedError, match=rf"{path.name}.*not the one.*Move the file away"
        ):
            verify_archive(str(target_path), database=history_url)
        path.write_bytes(former)
    assert verify_archive(str(target_path), database=history_url).damaged == []


def test_a_manifest_whose_files_do_not_add_up_is_refused(target_path: Path) -> None:
    shutil.copytree(FROZEN / "format-3", target_path)
    path = target_path / "bus_events/manifests/00000001.json"
    content = path.read_bytes()
    path.write_bytes(changed(content, files=manifests.decoded(content, "it").files[:-1]))
    with pytest.raises(ArchiveDamagedError, match="rows of its files differ"):
        verify_archive(str(target_path))


@needs.any_database
def test_an_archive_that_was_moved_is_compared_with_the_database_all_the_same(
    spark: SparkSession, history_url: URL, target_path: Path, tmp_path: Path
) -> None:
    two_runs(spark, history_url, target_path)
    moved = target_path.rename(tmp_path / "elsewhere")
    assert verify_archive(str(moved), database=history_url).damaged == []
    (moved / "bus_events/manifests/00000002.json").unlink()
    assert verify_archive(str(moved), database=history_url).lost == ["manifests/00000002.json"]


@needs.any_database
def test_a_byte_of_a_files_footer_that_was_changed_is_found(
    spark: SparkSession, history_url: URL, target_path: Path
) -> None:
    two_runs(spark, history_url, target_path)
    file = next((target_path / "bus_events/data").rglob("*.parquet"))
    content = bytearray(file.read_bytes())
    # Of the name of the library that wrote it, which no reader looks at.
    place = content.rindex(b"parquet-mr")
    content[place] ^= 1
    file.write_bytes(content)
    assert verify_archive(str(target_path)).damaged == [
        str(file.relative_to(target_path / "bus_events"))
    ]


def test_a_column_that_history_gets_later_damages_no_file(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    wider = [*HISTORY_COLUMNS, ArchivedColumn(name="added", type="string")]
    kind = replace(ENTRIES, columns=wider)
    monkeypatch.setattr("history_pipeline.archives.archive.kind_of", lambda _table: kind)
    monkeypatch.setattr(manifests, "HISTORY_COLUMNS", wider)
    samples = [*FROZEN.iterdir()]
    assert samples
    for sample in samples:
        assert verify_content(spark, str(sample)).damaged == []


@needs.any_database
def test_rows_that_others_stand_for_are_not_deleted(
    spark: SparkSession, history_url: URL, target_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many rows as were archived, but not the same.

    One was deleted by hand, and one committed late.
    """
    from history_pipeline.errors import ArchiveMismatchError
    from history_pipeline.upkeep.archiving import Archiver

    publish = Archiver.publish

    def then_another_row(self: Archiver, manifest: manifests.Manifest) -> manifests.Manifest:
        published = publish(self, manifest)
        database = Database(history_url)
        database.write(
            lambda connection: connection.execute(
                text("DELETE FROM bus_events_history WHERE record_id = 5")
            )
        )
        database.close()
        write_rows(history_url, [ended(12)])
        return published

    monkeypatch.setattr(Archiver, "publish", then_another_row)
    with pytest.raises(ArchiveMismatchError, match="Not archived: entries 12"):
        archive_history(spark, history_url, str(target_path))


@needs.any_database
def test_the_callers_session_keeps_its_settings_and_its_time_zone_changes_no_hour(
    spark: SparkSession, history_url: URL, target_path: Path
) -> None:
    utc = audit(spark, url=history_url).rows("statistics")
    former = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        assert audit(spark, url=history_url).rows("statistics") == utc
        archive_history(spark, history_url, str(target_path))
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Kolkata"
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(former))
