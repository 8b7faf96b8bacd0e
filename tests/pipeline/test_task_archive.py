"""Finished tasks are archived as entries are: copied, verified, and only then deleted."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL

from history_pipeline import (
    Scale,
    archive_changes,
    archive_history,
    compact_archive,
    expire_archive,
    read_archive,
    verify_archive,
    verify_content,
)
from history_pipeline.archives.manifest import live_files
from history_pipeline.errors import ArchiveMismatchError
from history_pipeline.jobs import archive as archive_job
from history_pipeline.jobs import verify as verify_job
from history_pipeline.rows.kind import TASKS
from history_pipeline.rows.schema import spark_schema
from sql.database import Database
from sql.statements.archives import Archives
from stickybus import WorkQueue
from stickybus.cli import main
from tests import requirements as needs
from tests.pipeline.archived import StoppedError, after, execute, manifests, stop
from tests.pipeline.archived_tasks import MIDNIGHT, SAMPLE, archived, in_history
from tests.pipeline.killing import CUTS_SPARK, killed
from tests.pipeline.tasks import TABLE, finished, write_tasks

SCHEMA = spark_schema(TASKS.columns)


def test_tasks_are_in_the_archive_row_by_row_and_no_longer_in_history(
    spark: SparkSession, tasks_url: URL, target: str
) -> None:
    before = in_history(spark, tasks_url)

    done = archive_history(spark, tasks_url, target, table=TABLE, scale=Scale(run_rows=20))

    assert (done.table, done.entries, len(done.runs)) == (TABLE, SAMPLE, 2)
    assert archived(spark, target) == before
    assert in_history(spark, tasks_url) == []
    assert archive_history(spark, tasks_url, target, table=TABLE).entries == 0
    first, second = manifests(spark, target, TABLE)
    assert [column.name for column in first.columns] == SCHEMA.names
    assert (first.table, first.hashed) == (TABLE, TASKS.names)
    assert (first.first_id, first.last_id, second.last_id) == (1, 20, SAMPLE)
    for verified in (
        verify_archive(target, table=TABLE, database=tasks_url),
        verify_content(spark, target, table=TABLE, database=tasks_url),
    ):
        assert (verified.entries, verified.damaged, verified.lost) == (SAMPLE, [], [])
    database = Database(tasks_url)
    rows = database.fetch(lambda connection: Archives().entered(connection, TABLE))
    database.close()
    assert [(row.run, row.state, row.entries) for row in rows] == [
        (first.run, "deleted", 20),
        (second.run, "deleted", SAMPLE - 20),
    ]


@needs.any_database
def test_what_a_work_queue_has_finished_is_archived_and_the_rest_stays(
    spark: SparkSession, database_url: URL, target: str
) -> None:
    work = WorkQueue(database_url, claimant="me")
    work.keep_history("mail")
    first, second, waiting = (work.insert("mail", {"to": name}) for name in ("ann", "bob", "cy"))
    work.modify(first.delete())
    work.modify(second.delete())
    [last, *_others] = work.finished_tasks("mail")

    done = archive_history(
        spark, database_url, target, table=TABLE, before=datetime.now(UTC) + timedelta(minutes=5)
    )

    assert done.entries == 2
    assert work.finished_tasks("mail") == []
    assert [task.id for task in work.tasks("mail")] == [waiting.id]
    rows = {row["task_id"]: row for row in read_archive(spark, target).collect()}
    assert rows.keys() == {first.id, second.id}
    row = rows[last.id]
    assert (row["queue"], row["finished_by"]) == (last.queue, last.finished_by)
    assert json.loads(row["value_json"]) == last.value
    work.modify(waiting.delete())
    assert [task.id for task in work.finished_tasks("mail")] == [waiting.id]
    work.close()


@needs.any_database
def test_files_are_parted_by_day_and_sorted_by_queue(
    spark: SparkSession, tasks_url: URL, target: str
) -> None:
    archive_history(spark, tasks_url, target, table=TABLE)
    files = live_files(manifests(spark, target, TABLE))
    assert [file.event_date for file in files] == ["2026-03-01", "2026-03-02"]
    for file in files:
        table = pq.ParquetFile(f"{target}/{TABLE}/{file.path}").read(["queue", "record_id"])
        places = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        assert places == sorted(places)


@needs.any_database
def test_values_and_messages_of_errors_are_left_out(
    spark: SparkSession, tasks_url: URL, target: str
) -> None:
    before = {row["record_id"]: row.asDict() for row in in_history(spark, tasks_url)}
    for row in before.values():
        error = row["err"] and "TimeoutError:"
        row |= {"value_json": None, "value_bytes": None, "err": error}

    archive_history(spark, tasks_url, target, table=TABLE, without=["payload", "errors"])

    assert {row["record_id"]: row.asDict() for row in archived(spark, target)} == before
    assert verify_content(spark, target, table=TABLE, database=tasks_url).damaged == []
    [change] = archive_changes(target, table=TABLE, database=tasks_url)
    assert (change.entries, change.without) == (SAMPLE, ["payload", "errors"])


def test_a_task_that_is_deleted_by_hand_rolls_the_deletion_back(
    spark: SparkSession, tasks_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = in_history(spark, tasks_url)
    after(
        "publish",
        lambda: execute(tasks_url, f"DELETE FROM {TABLE} WHERE record_id = 5"),
        monkeypatch,
    )

    with pytest.raises(ArchiveMismatchError, match="29 rows of history would be deleted"):
        archive_history(spark, tasks_url, target, table=TABLE)

    assert len(in_history(spark, tasks_url)) == SAMPLE - 1
    assert archive_history(spark, tasks_url, target, table=TABLE).finished == SAMPLE - 1
    assert archived(spark, target) == before
    assert in_history(spark, tasks_url) == []


def test_tasks_that_agree_in_number_and_sum_of_ids_are_not_deleted(
    spark: SparkSession, tasks_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(tasks_url, f"DELETE FROM {TABLE} WHERE record_id IN (12, 13)")

    def swap() -> None:
        execute(tasks_url, f"DELETE FROM {TABLE} WHERE record_id IN (11, 14)")
        write_tasks(tasks_url, [finished(12), finished(13)])

    after("publish", swap, monkeypatch)

    with pytest.raises(ArchiveMismatchError, match=r"Not archived: entries 12, 13\. Nothing was"):
        archive_history(spark, tasks_url, target, table=TABLE)

    again = archive_history(spark, tasks_url, target, table=TABLE)
    assert (again.finished, again.entries) == (SAMPLE - 4, 2)
    assert [row["record_id"] for row in archived(spark, target)] == list(range(1, SAMPLE + 1))


@needs.any_database
def test_a_task_that_was_committed_late_is_archived_by_the_next(
    spark: SparkSession, tasks_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(tasks_url, f"DELETE FROM {TABLE} WHERE record_id = 13")
    after("copy", lambda: write_tasks(tasks_url, [finished(13)]), monkeypatch)

    with pytest.raises(ArchiveMismatchError, match=r"Not archived: entries 13\. Nothing was"):
        archive_history(spark, tasks_url, target, table=TABLE)

    again = archive_history(spark, tasks_url, target, table=TABLE)
    assert (again.finished, again.entries) == (SAMPLE - 1, 1)
    assert [row["record_id"] for row in archived(spark, target)] == list(range(1, SAMPLE + 1))


@needs.any_database
def test_a_run_that_left_values_out_is_finished_by_what_it_has_archived(
    spark: SparkSession, tasks_url: URL, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    after("publish", stop, monkeypatch)
    with pytest.raises(StoppedError):
        archive_history(spark, tasks_url, target, table=TABLE, without=["payload"])

    done = archive_history(spark, tasks_url, target, table=TABLE, without=["payload"])

    assert (done.finished, done.entries) == (SAMPLE, 0)
    assert in_history(spark, tasks_url) == []


def check_killed(spark: SparkSession, url: URL, target: str, point: str) -> None:
    """An archive that is killed at a point has each task once, and is finished by the next."""
    before = in_history(spark, url)
    killed(spark, point, "archive tasks", url, target)
    assert in_history(spark, url) == ([] if point == "when rows are deleted" else before)
    archive_history(spark, url, target, table=TABLE)
    assert archived(spark, target) == before
    assert in_history(spark, url) == []


@pytest.mark.parametrize("point", ["before the manifest is written", "while rows are deleted"])
def test_an_archive_of_tasks_that_was_killed_loses_and_doubles_no_task(
    spark: SparkSession, tasks_url: URL, target: str, point: str
) -> None:
    check_killed(spark, tasks_url, target, point)


@needs.any_database
@pytest.mark.parametrize(
    "point",
    [
        CUTS_SPARK,
        "before the row is committed",
        "before the deletion is committed",
        "when rows are deleted",
    ],
)
def test_an_archive_of_tasks_that_was_killed_elsewhere_loses_and_doubles_no_task(
    spark: SparkSession, tasks_url: URL, target: str, point: str
) -> None:
    check_killed(spark, tasks_url, target, point)


@needs.any_database
def test_a_file_that_was_tampered_with_is_found(
    spark: SparkSession, tasks_url: URL, target: str
) -> None:
    archive_history(spark, tasks_url, target, table=TABLE)
    *_others, last = live_files(manifests(spark, target, TABLE))
    path = Path(target) / TABLE / last.path
    rows = pq.ParquetFile(path).read()
    claims = rows.schema.get_field_index("claims")
    nine = pa.array([9] * len(rows), pa.int32())
    pq.write_table(rows.set_column(claims, "claims", nine), path, compression="zstd")

    for verified in (
        verify_archive(target, table=TABLE),
        verify_content(spark, target, table=TABLE, database=tasks_url),
    ):
        assert verified.damaged == [last.path]


@needs.any_database
def test_tasks_are_compacted_and_expire(spark: SparkSession, tasks_url: URL, target: str) -> None:
    before = in_history(spark, tasks_url)
    archive_history(spark, tasks_url, target, table=TABLE, scale=Scale(run_rows=10))

    done = compact_archive(spark, target, database=tasks_url, table=TABLE)

    assert (done.entries, done.files_after) == (SAMPLE - 1, 1)
    assert archived(spark, target) == before
    assert verify_content(spark, target, table=TABLE, database=tasks_url).damaged == []
    gone = expire_archive(spark, target, database=tasks_url, table=TABLE, before=MIDNIGHT)
    assert (gone.days, gone.entries) == (1, 1)
    assert archived(spark, target) == before[1:]


@needs.any_database
def test_commands_and_jobs_archive_tasks(
    spark: SparkSession, tasks_url: URL, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = tasks_url.render_as_string(hide_password=False)

    def run(*arguments: str, expect: int = 0) -> str:
        code = main(["history", *arguments, "--table", TABLE, "--url", url])
        out, err = capsys.readouterr()
        assert code == expect, out + err
        return out + err

    midnight = MIDNIGHT.isoformat()
    assert run("archive", "--to", target, "--before", midnight).startswith(
        f"1 row moved from {TABLE} to 1 file ("
    )
    assert run("archive", "--to", target, "--before", midnight).startswith(
        f"nothing to archive: no row of {TABLE} ended before"
    )
    archive_job.main(["--url", url, "--to", target, "--table", TABLE, "--without", "payload"])
    assert json.loads(capsys.readouterr().out)["entries"] == SAMPLE - 1
    verify_job.main(["--in", target, "--table", TABLE])
    assert json.loads(capsys.readouterr().out)["entries"] == SAMPLE
    assert run("verify", "--in", target).startswith(f"2 files with {SAMPLE} rows in ")
    assert "payload" in run("log", "--in", target)
    assert "nothing to do" in run("compact", "--in", target)
    assert "takes entries alone" in run("replay", "--from", target, "--where", "true", expect=2)
    assert "takes entries alone" in run("erase", "1", "--in", target, expect=2)
    assert main(["report", "--json", "--table", TABLE, "--from-archive", target, "--url", url]) == 0
    assert json.loads(capsys.readouterr().out)["archived"] == SAMPLE
