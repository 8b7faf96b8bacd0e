"""Several jobs at once, in processes of their own: what is independent runs, the rest is refused.

Whatever comes together, each row is archived once, and nothing is deleted that is not archived.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from sqlalchemy import URL

from history_pipeline import (
    Scale,
    archive_history,
    compact_archive,
    erase_archived,
    expire_archive,
    read_archive,
    read_history,
    replay_archive,
    rolled_audit,
    verify_archive,
    verify_content,
)
from history_pipeline.archives import agreement as agreements
from history_pipeline.archives.agreement import Agreement, agreement
from history_pipeline.archives.archive import Archive
from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.archives.manifest import Kind, manifest_path
from history_pipeline.errors import ArchiveConflictError
from history_pipeline.upkeep.files_lock import files_lock
from queue_core.errors import LifecycleError
from sql.database import Database
from stickybus import PersistentBus
from tests import requirements as needs
from tests.pipeline.arrow_archive import write_archive
from tests.pipeline.sample import ended, sample_history, write_rows

SAMPLE = len(sample_history())
TABLES = ("bus_events", "notifications")


@contextmanager
def paused(
    spark: SparkSession, url: URL, target: str, table: str
) -> Iterator[subprocess.Popen[str]]:
    """An archive in a process of its own, which has copied its run and not published it."""
    gateway: Any = spark.sparkContext._gateway
    shared = {
        "PYSPARK_GATEWAY_PORT": str(gateway.gateway_parameters.port),
        "PYSPARK_GATEWAY_SECRET": gateway.gateway_parameters.auth_token,
    }
    address = url.render_as_string(hide_password=False)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.paused", address, target, table],
        env=os.environ | shared,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        assert process.stdout.readline() == "copied\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def go_on(process: subprocess.Popen[str]) -> None:
    """Let a paused archive publish and delete, without waiting for its end."""
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def archived_by(process: subprocess.Popen[str]) -> int:
    """How many entries a process has archived, once it has ended."""
    answer, _ = process.communicate(timeout=250)
    assert process.returncode == 0
    return int(answer)


def rows_of(spark: SparkSession, url: URL, table: str) -> list[Row]:
    return sorted(read_history(spark, url, f"{table}_history").collect())


def check_archive(
    spark: SparkSession, url: URL, target: str, table: str, expected: list[Row]
) -> None:
    """Each row is in the archive once, history is empty, and files are what manifests say."""
    assert sorted(read_archive(spark, target, table).collect()) == expected
    assert rows_of(spark, url, table) == []
    found = verify_content(spark, target, table=table, database=url)
    assert (found.entries, found.damaged, found.lost) == (len(expected), [], [])


@pytest.mark.parametrize("places", [("one", "one"), ("one", "another")])
def test_archives_of_two_tables_run_side_by_side(
    spark: SparkSession, history_url: URL, tmp_path: Path, places: tuple[str, str]
) -> None:
    write_rows(history_url, sample_history(), "notifications_history")
    expected = {table: rows_of(spark, history_url, table) for table in TABLES}
    targets = [str(tmp_path / place) for place in places]

    with (
        paused(spark, history_url, targets[0], TABLES[0]) as one,
        paused(spark, history_url, targets[1], TABLES[1]) as other,
    ):
        for process in (one, other):
            go_on(process)
        assert [archived_by(process) for process in (one, other)] == [SAMPLE, SAMPLE]

    for target, table in zip(targets, TABLES, strict=True):
        check_archive(spark, history_url, target, table, expected[table])


def test_beside_an_archive_only_what_reads_or_deletes_the_same_history_is_refused(
    spark: SparkSession, history_url: URL, tmp_path: Path, target: str
) -> None:
    everything = rows_of(spark, history_url, "bus_events")
    early = datetime(2026, 3, 2, 0, 0, 4, tzinfo=UTC)
    archive_history(spark, history_url, target, before=early, scale=Scale(run_rows=3))
    write_rows(history_url, [ended(50)])
    everything = sorted(everything + rows_of(spark, history_url, "bus_events")[-1:])
    bus = PersistentBus(history_url)

    with paused(spark, history_url, target, "bus_events") as archive:
        who = {
            "sqlite": rf"by stickybus-archive \(process {archive.pid} on ",
            "postgresql": r"by stickybus-archive \(session \d+",
        }.get(history_url.get_backend_name(), r"by session \d+ of ")
        with pytest.raises(ArchiveConflictError, match=who):
            archive_history(spark, history_url, str(tmp_path / "another"))
        with pytest.raises(ArchiveConflictError, match=who):
            replay_archive(spark, history_url, target, where="true", post=True)
        with pytest.raises(ArchiveConflictError, match=who):
            erase_archived(target, database=history_url, record_ids=[1])
        with pytest.raises(LifecycleError, match=who):
            bus.truncate_history()

        assert compact_archive(spark, target, database=history_url).run
        assert (
            expire_archive(
                spark, target, database=history_url, before=datetime(2026, 1, 1, tzinfo=UTC)
            ).run
            is None
        )
        found = verify_archive(target, database=history_url)
        assert (found.damaged, found.lost) == ([], [])
        both = rolled_audit(url=history_url, archive=target, tables=["bus_events"])
        assert both.faults["differs"] == 0
        go_on(archive)
        assert archived_by(archive) == len(everything) - found.entries

    bus.close()
    check_archive(spark, history_url, target, "bus_events", everything)
    kinds = [one.kind for one in Archive(spark, target, "bus_events").manifests()]
    assert kinds[-2:] == [Kind.COMPACTION, Kind.ARCHIVE]


def test_one_at_a_time_replaces_files_of_an_archive_and_an_archive_may_run_meanwhile(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    archive_history(spark, history_url, target, scale=Scale(run_rows=10))
    write_rows(history_url, [ended(50)])
    database = Database(history_url)
    archive = Archive(spark, target, "bus_events")
    date = datetime(2026, 3, 2, tzinfo=UTC)
    try:
        with files_lock(database, archive):
            for job in (
                lambda: compact_archive(spark, target, database=history_url),
                lambda: expire_archive(spark, target, database=history_url, before=date),
                lambda: erase_archived(target, database=history_url, record_ids=[1]),
            ):
                with pytest.raises(
                    ArchiveConflictError,
                    match=(
                        r"another compaction, expiry or erasure is under way, by s.*Nothing was"
                        r" done"
                    ),
                ):
                    job()
            assert archive_history(spark, history_url, target).entries == 1
    finally:
        database.close()

    assert compact_archive(spark, target, database=history_url).run
    assert erase_archived(target, database=history_url, record_ids=[1]).record_ids == [1]


@needs.any_database
@pytest.mark.parametrize("spelling", ["link", "relative", "slashes", "file", "copy"])
def test_the_files_of_an_archive_have_one_lock_however_their_directory_is_written(
    database_url: URL, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    write_archive(database_url, target, [[ended(1)]])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(target)
    shutil.copytree(target, tmp_path / "copy")
    written = {
        "link": str(tmp_path / "link"),
        "relative": "archive",
        "slashes": f"{target}//",
        "file": f"file://{target}",
        "copy": "copy",
    }[spelling]
    erase = partial(erase_archived, written, database=database_url, record_ids=[1])

    with (
        locked(database_url, ArrowStorage(f"{target}/bus_events")),
        pytest.raises(ArchiveConflictError, match="another compaction, expiry or erasure"),
    ):
        erase()

    assert erase().record_ids == [1]


@needs.any_database
@pytest.mark.parametrize("manifests", [{}, {1: b'{"run": "torn'}])
def test_files_can_be_locked_while_no_manifest_names_their_archive(
    database_url: URL, target: str, manifests: dict[int, bytes]
) -> None:
    storage = ArrowStorage(f"{target}/bus_events")
    storage.make("manifests")
    for number, content in manifests.items():
        storage.put(manifest_path(number), content)

    with locked(database_url, storage):
        pass


@contextmanager
def locked(url: URL, storage: ArrowStorage) -> Iterator[None]:
    """The files of an archive, locked as by a compaction of another process."""
    database = Database(url)
    try:
        with files_lock(database, ArchiveLog(storage, "bus_events")):
            yield
    finally:
        database.close()


@needs.any_database
def test_a_reader_between_the_row_and_the_file_of_a_manifest_waits_for_the_file(
    spark: SparkSession, history_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive_history(spark, history_url, target)
    [manifest] = Path(target).glob("bus_events/manifests/*.json")
    content = manifest.read_bytes()
    manifest.unlink()

    def then_it_is_written(*arguments: Any) -> Agreement:
        found = agreement(*arguments)
        manifest.write_bytes(content)
        return found

    monkeypatch.setattr(agreements, "agreement", then_it_is_written)

    assert verify_archive(target, database=history_url).lost == []


@needs.any_database
def test_a_reader_of_a_slow_storage_looks_few_times_for_a_manifest_that_is_lost(
    database_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_archive(database_url, target, [[ended(1)], [ended(2)]])
    (Path(target) / "bus_events" / manifest_path(2)).unlink()
    passed, looks = 0.0, 0

    def slow_look(*arguments: Any) -> Agreement:
        nonlocal passed, looks
        passed, looks = passed + 1.5, looks + 1
        return agreement(*arguments)

    def sleep(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    monkeypatch.setattr(agreements, "agreement", slow_look)
    monkeypatch.setattr(agreements, "time", SimpleNamespace(monotonic=lambda: passed, sleep=sleep))

    assert verify_archive(target, database=database_url).lost == [manifest_path(2)]
    assert looks == 3
