"""Finished tasks of an archive are erased by their ids: their rows stay, and so does the proof."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL

from history_pipeline import (
    archive_changes,
    compact_archive,
    erase_archived_tasks,
    find_archived_tasks,
    verify_archive,
    verify_content,
)
from history_pipeline.archives.manifest import Kind, live_files
from history_pipeline.errors import ArchiveConflictError, ArchiveNotFoundError
from history_pipeline.upkeep.history_lock import history_lock
from queue_core.errors import ConfigurationError
from sql.database import Database
from tests import requirements as needs
from tests.pipeline.arrow_archive import all_texts, manifests, write_archive
from tests.pipeline.conftest import Erase
from tests.pipeline.sample import ended
from tests.pipeline.tasks import TABLE, finished, sample_tasks

CUSTOMER: dict[int, dict[str, Any]] = {
    31: {"value_json": '{"mail":"ada@example.org"}'},
    32: {"value_json": None, "value_bytes": b"ada"},
    33: {"value_json": None, "err": "ValueError: ada is unknown\nTraceback", "attempt": 2},
    34: {"value_json": '"ada"', "task_id": "task-31", "claims": 3},
}
"""Rows of one customer: the first task was inserted again under its id, and is in a later run."""
IDS = ["task-31", "task-32", "task-33"]
SAMPLE = len(sample_tasks()) + len(CUSTOMER)


@pytest.fixture
def target(database_url: URL, tmp_path: Path) -> str:
    """An archive of three runs."""
    rows = [*sample_tasks(), *(finished(one, **more) for one, more in CUSTOMER.items())]
    target = str(tmp_path / "archive")
    write_archive(database_url, target, [rows[:20], rows[20:33], rows[33:]], table=TABLE)
    return target


def tasks(target: str) -> dict[int, dict[str, Any]]:
    return {one.record_id: msgspec.structs.asdict(one) for one in find_archived_tasks(target)}


def test_tasks_lose_values_and_messages_and_all_else_is_proved_to_be_the_same(
    database_url: URL, target: str
) -> None:
    before, old = tasks(target), live_files(manifests(target, TABLE))

    seen = erase_archived_tasks(target, IDS, database=database_url, dry_run=True)
    assert (seen.table, seen.record_ids, seen.run) == (TABLE, [*CUSTOMER], None)
    assert tasks(target) == before
    done = erase_archived_tasks(target, IDS, database=database_url)

    assert (done.record_ids, done.files) == ([*CUSTOMER], 2)
    for record_id in CUSTOMER:
        error = "ValueError:" if record_id == 33 else None
        before[record_id] |= {"value_json": None, "value_bytes": None, "err": error}
    assert tasks(target) == before
    assert "ada" not in all_texts(target)
    manifest = manifests(target, TABLE)[-1]
    assert (manifest.kind, manifest.run) == (Kind.ERASURE, done.run)
    assert manifest.erased is not None
    assert manifest.erased.record_ids == [*CUSTOMER]
    assert {file.path for file in old} > set(manifest.replaces)
    change = archive_changes(target, table=TABLE, database=database_url)[-1]
    assert (change.kind, change.entries) == ("erasure", len(CUSTOMER))
    found = verify_archive(target, table=TABLE, database=database_url)
    assert (found.entries, found.damaged, found.lost) == (SAMPLE, [], [])

    again = erase_archived_tasks(target, IDS, database=database_url)
    assert (again.run, again.record_ids) == (None, [])


@needs.any_database
def test_spark_finds_the_same_proof_and_compacts_what_was_erased(
    spark: SparkSession, database_url: URL, target: str
) -> None:
    erase_archived_tasks(target, IDS, database=database_url)
    after = tasks(target)

    assert verify_content(spark, target, table=TABLE, database=database_url).damaged == []
    assert compact_archive(spark, target, database=database_url, table=TABLE).entries > 0

    assert tasks(target) == after
    assert verify_content(spark, target, table=TABLE, database=database_url).damaged == []


@needs.any_database
def test_an_erasure_of_tasks_needs_an_archive_ids_and_its_history_for_itself(
    database_url: URL, target: str, tmp_path: Path
) -> None:
    before = tasks(target)
    for wrong in ("task-31", [1], ["\udcff"]):
        with pytest.raises(ConfigurationError, match="ids"):
            erase_archived_tasks(target, wrong, database=database_url)  # type: ignore[arg-type]
    with pytest.raises(ArchiveNotFoundError):
        erase_archived_tasks(str(tmp_path / "nowhere"), IDS, database=database_url)
    assert erase_archived_tasks(target, ["nobody"], database=database_url).run is None
    database = Database(database_url)
    try:
        with (
            history_lock(database, TABLE),
            pytest.raises(ArchiveConflictError, match="is under way"),
        ):
            erase_archived_tasks(target, IDS, database=database_url)
    finally:
        database.close()
    assert tasks(target) == before


@needs.any_database
def test_the_command_erases_tasks_by_yes_and_touches_no_entries(
    database_url: URL, target: str, erase: Erase
) -> None:
    write_archive(database_url, target, [[ended(31)]])
    kept = {one.name: one.read_bytes() for one in Path(target, "bus_events").rglob("*.parquet")}
    chosen = [word for one in IDS for word in ("--task", one)]

    assert "31, 32, 33, 34" in erase(*chosen)
    assert "ada" in all_texts(target)
    done = json.loads(erase("-t", "task-32", "--yes", "--json"))
    assert [one["record_ids"] for one in done["tables"]] == [[32]]
    assert "Erased" in erase(*chosen, "--table", TABLE, "--yes")
    assert "ada" not in all_texts(target)
    for wrong in (["1"], ["--key1", "1"], ["--table", "bus_events"]):
        assert "--task takes finished tasks" in erase("--task", "task-1", *wrong, expect=2)
    assert "takes entries alone" in erase("1", "--table", TABLE, expect=2)
    left = {one.name: one.read_bytes() for one in Path(target, "bus_events").rglob("*.parquet")}
    assert left == kept
