"""An archive may leave out parts of entries: all else stays, is proved, found and counted."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL

from history_pipeline import (
    archive_changes,
    archive_history,
    audit,
    compact_archive,
    erase_archived,
    find_archived,
    read_archive,
    read_history,
    replay_archive,
    rolled_audit,
    verify_archive,
    verify_content,
)
from history_pipeline.archives.archive import Archive
from history_pipeline.archives.manifest import live_files
from history_pipeline.errors import ArchiveConflictError, ArchiveIncompleteError
from history_pipeline.jobs import archive as job
from queue_core.errors import ConfigurationError
from stickybus.cli import main
from tests import requirements as needs
from tests.pipeline.archived import StoppedError, after, execute, stop
from tests.pipeline.arrow_archive import all_texts
from tests.pipeline.sample import ended, sample_history, write_rows

SAMPLE = len(sample_history())
BOTH = ["payload", "errors"]
TYPES = {
    'ValueError: "größer" als, 10 €\nTraceback:\r\n  File "x.py"\\N, \\. 🚚': "ValueError:",
    "unknown for too long": None,
    "": None,
    None: None,
}
"""What is left of each error of the sample."""


def rows(spark: SparkSession, url: URL) -> dict[int, dict[str, Any]]:
    return {row["record_id"]: row.asDict() for row in read_history(spark, url).collect()}


def lacking(target: str) -> dict[int, tuple[str, ...]]:
    found = find_archived(target, table="bus_events")
    return {one.entry.record_id: one.not_archived for one in found}


def test_all_that_was_not_left_out_is_archived_proved_and_counted(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    expected = rows(spark, history_url)
    figures = rolled_audit(url=history_url, tables=["bus_events"]).rows("statistics")
    for row in expected.values():
        row |= {"event_json": None, "event_bytes": None, "last_error": TYPES[row["last_error"]]}

    archive_history(spark, history_url, target, without=BOTH)

    assert {row["record_id"]: row.asDict() for row in read_archive(spark, target).collect()} == (
        expected
    )
    assert rows(spark, history_url) == {}
    assert "number" not in all_texts(target)
    for found in (
        verify_archive(target, database=history_url),
        verify_content(spark, target, database=history_url),
    ):
        assert (found.entries, found.damaged, found.lost) == (SAMPLE, [], [])
    [change] = archive_changes(target)
    assert change.without == BOTH
    failed = {row["record_id"] for row in sample_history() if row["processing_state"] == "FAILED"}
    assert lacking(target) == {
        one: ("payload", "errors") if one in failed else ("payload",) for one in expected
    }
    assert rolled_audit(archive=target).rows("statistics") == figures


def test_a_killed_run_is_finished_by_what_it_has_archived(
    spark: SparkSession, history_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    after("publish", stop, monkeypatch)
    with pytest.raises(StoppedError):
        archive_history(spark, history_url, target, without=BOTH)

    tables = ["bus_events"]
    for both in (
        rolled_audit(url=history_url, archive=target, tables=tables),
        audit(spark, url=history_url, archive=target, tables=tables),
    ):
        assert both.faults["differs"] == 0
    change = "UPDATE bus_events_history SET error_count = {} WHERE record_id = 5"
    execute(history_url, change.format(7))
    with pytest.raises(
        ArchiveConflictError, match="Other content than in the archive has entries 5"
    ):
        archive_history(spark, history_url, target, without=BOTH)
    execute(history_url, change.format(0))
    with pytest.raises(ArchiveConflictError, match="was archived without errors, and then killed"):
        archive_history(spark, history_url, target, without=["payload"])
    assert len(rows(spark, history_url)) == SAMPLE
    assert archive_history(spark, history_url, target, without=BOTH).finished == SAMPLE
    assert rows(spark, history_url) == {}


@needs.any_database
def test_each_run_has_its_choice_and_a_compaction_keeps_apart_what_each_entry_lacks(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    archive_history(spark, history_url, target)
    write_rows(history_url, [ended(50), ended(51, "FAILED", last_error="KeyError: 'ada'")])
    archive_history(spark, history_url, target, without=["errors"])
    write_rows(history_url, [ended(52)])
    archive_history(spark, history_url, target, without=["payload"])

    for _ in ("as written", "compacted"):
        found = lacking(target)
        assert {one: found[one] for one in (1, 50, 51, 52)} == {
            1: (),
            50: (),
            51: ("errors",),
            52: ("payload",),
        }
        compact_archive(spark, target, database=history_url)
    files = live_files(Archive(spark, target, "bus_events").manifests())
    assert [(file.event_date, file.without) for file in files] == [
        ("2026-03-01", []),
        ("2026-03-02", BOTH),
    ]
    assert verify_content(spark, target, database=history_url).damaged == []


@needs.any_database
def test_a_search_by_a_text_that_was_left_out_is_refused(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    archive_history(spark, history_url, target, before=datetime(2026, 3, 2, tzinfo=UTC))
    archive_history(spark, history_url, target, without=["errors"])

    with pytest.raises(ArchiveIncompleteError, match="2026-03-02 to 2026-03-02"):
        find_archived(target, error_text="traceback")

    midnight = datetime(2026, 3, 2, tzinfo=UTC)
    assert find_archived(target, error_text="traceback", finished_before=midnight) == []
    assert len(find_archived(target, error_type="ValueError")) == 3
    with pytest.raises(ArchiveIncompleteError, match="Leave out error_text or error_type"):
        find_archived(target, error_type="my-error")


@needs.any_database
def test_a_replay_says_what_it_can_not_post(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    archive_history(spark, history_url, target, without=["payload"])
    write_rows(history_url, [ended(50), ended(51)])
    archive_history(spark, history_url, target)

    nothing = replay_archive(spark, history_url, target, where="record_id < 4")
    done = replay_archive(spark, history_url, target, where="record_id IN (1, 50, 51)", post=True)

    assert (nothing.entries, nothing.without_payload) == (0, 3)
    assert (done.posted, done.without_payload) == (2, 1)


@needs.any_database
def test_an_erasure_finds_entries_without_payload(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    write_rows(history_url, [ended(50, search_key2=4711, user_token="ada")])
    archive_history(spark, history_url, target, without=BOTH)

    assert erase_archived(target, database=history_url, search_key2=4711).record_ids == [50]

    assert "ada" not in all_texts(target)
    assert erase_archived(target, database=history_url, record_ids=[50]).record_ids == []
    assert verify_archive(target, database=history_url).damaged == []
    assert lacking(target)[50] == ("payload",)


@needs.any_database
def test_only_parts_that_nothing_else_needs_can_be_left_out(
    spark: SparkSession, history_url: URL, target: str
) -> None:
    for wrong in (["record_id"], ["payload", "headers"], "payload"):
        with pytest.raises(ConfigurationError, match="payload and errors"):
            archive_history(spark, history_url, target, without=wrong)
    assert len(rows(spark, history_url)) == SAMPLE


@needs.any_database
def test_commands_say_what_was_not_archived(
    spark: SparkSession, history_url: URL, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = history_url.render_as_string(hide_password=False)

    def run(*arguments: str) -> str:
        assert main([*arguments, "--url", url]) == 0
        return capsys.readouterr().out

    run(
        "history",
        "archive",
        "--to",
        target,
        "--without",
        "payload",
        "--before",
        "2026-03-02T00:00Z",
    )
    job.main(["--url", url, "--to", target, "--without", "payload", "--without", "errors"])
    capsys.readouterr()

    show = ("entries", "show", "1", "--archive", target, "--payload")
    assert ["not_archived", "payload"] in [line.split() for line in run(*show).splitlines()]
    assert json.loads(run(*show, "--json"))["not_archived"] == ["payload"]
    assert "not archived" in run("history", "list", "--archive", target, "--payload")
    assert "payload, errors" in run("history", "log", "--in", target)
    assert [
        one["without"] for one in json.loads(run("history", "log", "--in", target, "--json"))
    ] == [
        ["payload"],
        BOTH,
    ]
    replayed = run("history", "replay", "--from", target, "--where", "record_id < 4")
    assert "3 entries more can't be posted" in replayed
