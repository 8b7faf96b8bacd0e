"""History is moved to an archive.

All rows move exactly once, and only archived rows are deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession
from sqlalchemy import URL, text

from history_pipeline import Scale, archive_history, read_archive, read_history
from history_pipeline.archives.archive import Archive
from history_pipeline.archives.manifest import Manifest, live_files
from history_pipeline.archives.storage import LocalStorage
from history_pipeline.errors import (
    ArchiveConflictError,
    ArchiveDamagedError,
    ArchiveMismatchError,
    ArchiveNotFoundError,
    ArchiveTargetError,
)
from history_pipeline.period import period_of
from history_pipeline.rows.fingerprint import joined
from history_pipeline.scale import HELP, scale_of
from history_pipeline.upkeep.archiving import Archiver
from history_pipeline.upkeep.deletion import locked_history
from history_pipeline.upkeep.leftovers import remove_leftovers
from queue_core.errors import ConfigurationError, LifecycleError, NaiveDateTimeError
from sql.database import Database
from sql.statements.archives import Archives
from stickybus import PersistentBus
from tests import requirements as needs
from tests.conftest import NewDatabase
from tests.pipeline.sample import START, TABLE, ended, sample_history, write_rows

SAMPLE = len(sample_history())


@pytest.fixture
def target(tmp_path: Path) -> str:
    """A directory that does not exist yet."""
    return str(tmp_path / "archive")


def rows_of(spark: SparkSession, url: URL) -> list[Row]:
    return sorted(read_history(spark, url).collect())


def archived(spark: SparkSession, target: str) -> list[Row]:
    return sorted(read_archive(spark, target).collect())


def manifests(spark: SparkSession, target: str) -> list[Manifest]:
    return Archive(spark, target, "bus_events").manifests()


def after(step: str, then: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Call `then` once, when the archive's next `step` is done."""
    former: Callable[..., Any] = getattr(Archiver, step)
    pending = [then]

    def changed(self: Archiver, *arguments: Any) -> Any:
        done = former(self, *arguments)
        if pending:
            pending.pop()()
        return done

    monkeypatch.setattr(Archiver, step, changed)


class StoppedError(Exception):
    """Ends a run in the middle."""


def stop() -> None:
    raise StoppedError


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


def execute(url: URL, statement: str) -> None:
    database = Database(url)
    database.write(lambda connection: connection.execute(text(statement)))
    database.close()


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
    with pytest.raises(ArchiveDamagedError, match="38 rows were written, and 35 read back"):
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
def test_a_date_needs_a_time_zone(spark: SparkSession, history_url: URL, target: str) -> None:
    with pytest.raises(NaiveDateTimeError):
        archive_history(spark, history_url, target, before=datetime(2026, 1, 1))  # noqa: DTZ001 -- the mistake


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
        "postgresql": "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks JOIN pg_database ON database = oid "
        "WHERE locktype = 'advisory' AND datname = current_database()",
        "mariadb": f"KILL CONNECTION (SELECT IS_USED_LOCK('{history_url.database}:{TABLE}'))",
        "mysql": f"KILL CONNECTION IS_USED_LOCK('{history_url.database}:{TABLE}')",
    }
    after("publish", lambda: execute(history_url, kill[database_name]), monkeypatch)
    with pytest.raises(Exception, match=r"(?i)connection|gone away|terminating"):
        archive_history(spark, history_url, target)

    assert len(rows_of(spark, history_url)) == SAMPLE
    assert archive_history(spark, history_url, target).finished == SAMPLE
    assert len(archived(spark, target)) == SAMPLE


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
def test_no_size_is_below_one(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}=0 is not allowed"):
        Scale(**{name: 0})


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


def test_former_keywords_of_sizes_still_work_and_warn() -> None:
    with pytest.warns(DeprecationWarning, match=r"run_rows= goes with 1\.0: use scale=Scale"):
        scale = scale_of(Scale(file_bytes=7), run_rows=5, file_bytes=None)

    assert scale == Scale(run_rows=5, file_bytes=7)
