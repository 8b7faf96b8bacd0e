"""Entries of an archive are erased, by Arrow alone: their rows stay, and so does the proof."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL, Connection, update

from history_pipeline import (
    compact_archive,
    erase_archived,
    find_archived,
    replay_archive,
    verify_archive,
    verify_content,
)
from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.archives.manifest import Kind, Manifest, live_files, new_run
from history_pipeline.archives.storage import LocalStorage, Storage
from history_pipeline.errors import ArchiveConflictError, ArchiveDamagedError, ArchiveNotFoundError
from history_pipeline.upkeep import compaction, erasure
from history_pipeline.upkeep.history_lock import history_lock
from history_pipeline.upkeep.publication import publish
from queue_core.errors import InvalidPostError
from queue_core.storage.search_keys import KEYLESS
from sql.database import Database
from sql.search_keys import of_text
from sql.statements.archives import PUBLISHED
from sql.tables import queue_archives
from tests import requirements as needs
from tests.pipeline.archived import log, no_lock
from tests.pipeline.arrow_archive import all_texts, manifests, write_archive
from tests.pipeline.conftest import Erase
from tests.pipeline.sample import ended, sample_history

KEY = of_text("ada")
CUSTOMER: dict[int, dict[str, Any]] = {
    41: {"event_json": '{"mail":"ada@example.org"}', "user_token": "ada"},
    42: {"event_json": None, "event_bytes": b"ada", "codec": "msgpack"},
    43: {"processing_state": "FAILED", "last_error": "ValueError: ada is unknown\nTraceback"},
    44: {"search_key1": KEY.number, "headers": f"{{{KEY.member('search_key1')}}}"},
}
"""Rows of one customer, whose second search key is 4711, in two files of one day."""
ERASED = [*CUSTOMER]
SAMPLE = len(sample_history()) + len(CUSTOMER)
GONE = (
    *("event_json", "event_bytes", "user_token", "future_user_token"),
    *("search_key1", "search_key2", "headers"),
)


@pytest.fixture
def target(database_url: URL, tmp_path: Path) -> str:
    """An archive of three runs."""
    rows = [
        *sample_history(),
        *(ended(one, search_key2=4711, **more) for one, more in CUSTOMER.items()),
    ]
    target = str(tmp_path / "archive")
    write_archive(database_url, target, [rows[:20], rows[20:40], rows[40:]])
    return target


def rows(target: str) -> dict[int, dict[str, Any]]:
    found = find_archived(target, table="bus_events")
    return {one.entry.record_id: msgspec.to_builtins(one.entry) for one in found}


def test_entries_with_a_key_lose_what_was_posted_and_all_else_is_proved_to_be_the_same(
    database_url: URL, target: str
) -> None:
    before, old = rows(target), live_files(manifests(target))

    seen = erase_archived(target, database=database_url, search_key2=4711, dry_run=True)
    assert (seen.record_ids, seen.run) == (ERASED, None)
    assert rows(target) == before
    done = erase_archived(target, database=database_url, search_key2=4711)

    assert (done.record_ids, done.files) == (ERASED, seen.files)
    for record_id in CUSTOMER:
        error = "ValueError:" if record_id == 43 else None
        before[record_id] |= dict.fromkeys(GONE) | {"last_error": error}
    assert rows(target) == before
    assert "ada" not in all_texts(target)
    manifest = manifests(target)[-1]
    assert (manifest.kind, manifest.run) == (Kind.ERASURE, done.run)
    assert manifest.erased is not None
    assert manifest.erased.record_ids == ERASED
    assert {file.path for file in old} > set(manifest.replaces)
    entered = log(database_url)[-1]
    assert (entered.run, entered.kind, entered.entries) == (done.run, "erasure", len(CUSTOMER))
    found = verify_archive(target, database=database_url)
    assert (found.entries, found.damaged, found.lost) == (SAMPLE, [], [])

    again = erase_archived(target, database=database_url, record_ids=ERASED)
    assert (again.run, again.record_ids) == (None, [])


@needs.any_database
def test_a_key_that_is_a_text_and_ids_choose_entries_as_well(
    database_url: URL, target: str
) -> None:
    erase = partial(erase_archived, target, database=database_url)

    assert erase(search_key1="ada").record_ids == [44]
    assert erase(search_key2=4711, record_ids=[41, 44, 1]).record_ids == [41]
    assert erase(record_ids=[1, 43, 99]).record_ids == [1, 43]
    assert verify_archive(target, database=database_url).damaged == []


@needs.any_database
def test_spark_reads_what_was_erased_and_compacts_it_and_posts_it_no_more(
    spark: SparkSession, database_url: URL, target: str
) -> None:
    erase_archived(target, database=database_url, search_key2=4711)
    after = rows(target)

    assert verify_content(spark, target, database=database_url).damaged == []
    assert replay_archive(spark, database_url, target, where="record_id > 40").entries == 0
    assert compact_archive(spark, target, database=database_url).entries > 0

    assert rows(target) == after
    assert verify_content(spark, target, database=database_url).damaged == []


@needs.any_database
def test_files_that_were_replaced_before_go_at_once_too(database_url: URL, target: str) -> None:
    erase_archived(target, database=database_url, record_ids=[43])
    [[replaced]] = [one.replaces for one in manifests(target) if one.replaces]
    # As if a compaction had replaced it just now.
    ArrowStorage(f"{target}/bus_events").put(replaced, b"")
    unpublished = new_run(datetime.now(UTC) - timedelta(minutes=1))
    ArrowStorage(f"{target}/bus_events").put(f"data/{unpublished}/event_date=1/part.parquet", b"")

    erase_archived(target, database=database_url, search_key2=4711)

    there = {
        str(file.relative_to(f"{target}/bus_events")) for file in Path(target).rglob("*.parquet")
    }
    assert there == {file.path for file in live_files(manifests(target))}


STEPS: dict[str, tuple[type, str]] = {
    "before a file is written": (ArrowStorage, "new"),
    "when files are written": (ArrowStorage, "settle"),
    "before the manifest is written": (LocalStorage, "put"),
    "before files are removed": (LocalStorage, "remove"),
}


@needs.any_database
@pytest.mark.parametrize("step", STEPS)
def test_an_erasure_that_was_killed_is_run_again(
    database_url: URL, target: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_arguments: object, **_options: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as changing:
        changing.setattr(*STEPS[step], stop)
        with pytest.raises(InterruptedError):
            erase_archived(target, database=database_url, search_key2=4711)

    erase_archived(target, database=database_url, search_key2=4711)

    assert "ada" not in all_texts(target)
    found = verify_archive(target, database=database_url)
    assert (found.entries, found.damaged, found.lost) == (SAMPLE, [], [])


@needs.any_database
def test_an_erasure_that_has_changed_another_row_is_found(
    database_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forged(
        archive: ArchiveLog[Storage],
        database: Database,
        manifest: Manifest,
        *,
        connection: Connection,
    ) -> Manifest:
        assert manifest.erased is not None
        after = msgspec.structs.replace(
            manifest.erased.after, total=manifest.erased.after.total + 1
        )
        erased = msgspec.structs.replace(manifest.erased, after=after)
        changed = msgspec.structs.replace(manifest, erased=erased)
        return publish(archive, database, changed, connection=connection)

    monkeypatch.setattr(erasure, "publish", forged)
    erase_archived(target, database=database_url, search_key2=4711)

    with pytest.raises(ArchiveDamagedError, match="hold other rows than those that they replace"):
        verify_archive(target)


@needs.any_database
def test_an_erasure_that_has_read_what_is_compacted_meanwhile_is_not_published(
    spark: SparkSession, database_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the loss of the lock with its connection."""

    def after_a_compaction(
        archive: ArchiveLog[Storage],
        database: Database,
        manifest: Manifest,
        *,
        connection: Connection,
    ) -> Manifest:
        compact_archive(spark, target, database=database_url)
        return publish(archive, database, manifest, connection=connection)

    with monkeypatch.context() as changing:
        changing.setattr(compaction, "files_lock", no_lock)
        changing.setattr(erasure, "publish", after_a_compaction)
        with pytest.raises(ArchiveConflictError, match="published by another compaction"):
            erase_archived(target, database=database_url, search_key2=4711)

    runs = {manifest.run for manifest in manifests(target)}
    assert set(ArrowStorage(f"{target}/bus_events").names("data")) <= runs


@needs.any_database
def test_nothing_is_erased_from_a_damaged_file(database_url: URL, target: str) -> None:
    [*_others, newest] = manifests(target)
    path = f"{target}/bus_events/{newest.files[-1].path}"
    changed = pq.ParquetFile(path).read()
    nodes = pa.array(["another"] * len(changed))
    place = changed.column_names.index("processing_owner")
    pq.write_table(changed.set_column(place, "processing_owner", nodes), path)

    with pytest.raises(ArchiveDamagedError, match="rows of its manifest"):
        erase_archived(target, database=database_url, search_key2=4711)

    assert manifests(target)[-1] == newest


def test_an_erasure_is_refused_while_another_job_holds_history_or_has_to_be_finished(
    database_url: URL, target: str
) -> None:
    database = Database(database_url)
    try:
        with (
            history_lock(database, "bus_events"),
            pytest.raises(ArchiveConflictError, match="is under way"),
        ):
            erase_archived(target, database=database_url, record_ids=[1])
        run = manifests(target)[-1].run
        database.write(
            lambda connection: connection.execute(
                update(queue_archives).where(queue_archives.c.run == run).values(state=PUBLISHED)
            )
        )
    finally:
        database.close()

    with pytest.raises(ArchiveConflictError, match="`stickybus history archive` first"):
        erase_archived(target, database=database_url, record_ids=[1])


@needs.any_database
def test_an_erasure_needs_an_archive_and_ids_or_keys(database_url: URL, tmp_path: Path) -> None:
    erase: Callable[..., object] = erase_archived
    with pytest.raises(ArchiveNotFoundError):
        erase(str(tmp_path), database=database_url, record_ids=[1])
    for wrong in ({}, {"search_key1": KEYLESS}, {"search_key2": 2**70}, {"record_ids": ["x"]}):
        with pytest.raises(InvalidPostError):
            erase(str(tmp_path), database=database_url, **wrong)


@needs.any_database
def test_the_command_shows_what_it_would_erase_and_erases_it_by_yes(
    database_url: URL, target: str, erase: Erase
) -> None:
    assert "41, 42, 43, 44" in erase("--key2", "4711")
    assert "this was a dry run" in erase("--key2", "4711")
    assert "ada" in all_texts(target)
    done = json.loads(erase("41", "42", "--yes", "--json"))
    assert done["erased"]
    assert [one["record_ids"] for one in done["tables"]] == [[41, 42]]
    assert "Erased" in erase("--key2", "4711", "--yes")
    assert "ada" not in all_texts(target)
    assert "give ids, --key1" in erase(expect=2)
    write_archive(database_url, target, [[ended(1)]], table="notifications")
    assert "ids are those of one table" in erase("1", "--yes", expect=2)
