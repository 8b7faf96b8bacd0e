"""The history of finished tasks is read and archived as that of entries is."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StructType
from sqlalchemy import URL

from history_pipeline import (
    Scale,
    archive_changes,
    archive_history,
    audit,
    compact_archive,
    erase_archived,
    expire_archive,
    find_archived,
    find_archived_tasks,
    read_archive,
    read_history,
    replay_archive,
    rolled_audit,
    verify_archive,
    verify_content,
)
from history_pipeline.archives.archive import Archive
from history_pipeline.archives.manifest import Manifest, live_files
from history_pipeline.errors import (
    ArchiveMismatchError,
    ArchiveNotFoundError,
    SourceOptionError,
)
from history_pipeline.jobs import archive as archive_job
from history_pipeline.jobs import verify as verify_job
from history_pipeline.rows.kind import TASKS
from history_pipeline.rows.schema import spark_schema
from history_pipeline.source.options import ReadOptions, StreamOptions
from history_pipeline.source.reader import HistoryReader
from queue_core.errors import ConfigurationError, InvalidPostError, NaiveDateTimeError
from sql.database import Database
from sql.statements.archives import Archives
from stickybus import WorkQueue
from stickybus.cli import main
from tests import requirements as needs
from tests.pipeline.sample import sample_history, write_rows
from tests.pipeline.tasks import TABLE, finished, sample_tasks, write_tasks
from tests.pipeline.test_archive import StoppedError, after, execute, stop
from tests.pipeline.test_archive_killed import CUTS_SPARK, killed
from work_queue.storage.rows import finished_of

SAMPLE = len(sample_tasks())
MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
SCHEMA = spark_schema(TASKS.columns)


@pytest.fixture
def tasks_url(database_url: URL) -> URL:
    """A database, of each kind in turn, whose history of tasks holds `sample_tasks()`."""
    write_tasks(database_url, sample_tasks())
    return database_url


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


def in_history(spark: SparkSession, url: URL) -> list[Row]:
    return sorted(read_history(spark, url, TABLE).collect())


def archived(spark: SparkSession, target: str) -> list[Row]:
    return sorted(read_archive(spark, target, TABLE).collect())


def manifests(spark: SparkSession, target: str) -> list[Manifest]:
    return Archive(spark, target, TABLE).manifests()


def reader(url: URL, schema: StructType = SCHEMA, **options: str) -> HistoryReader:
    given = {"url": url.render_as_string(hide_password=False), "table": TABLE, **options}
    return HistoryReader(schema, ReadOptions.read(given))


def rows_of(reader: HistoryReader) -> list[dict[str, Any]]:
    return [
        row
        for part in reader.partitions()
        for page in reader.read(part)
        for row in page.to_pylist()
    ]


# -- reading --------------------------------------------------------------------------------------


def test_each_value_is_read_as_it_was_written(tasks_url: URL) -> None:
    assert rows_of(reader(tasks_url, ids_per_partition="7")) == sample_tasks()


def test_dates_ids_and_columns_choose(tasks_url: URL) -> None:
    wanted = StructType([SCHEMA[name] for name in ("finished_date", "record_id", "queue")])
    found = rows_of(reader(tasks_url, wanted, since=MIDNIGHT.isoformat(), last_id="4"))
    assert found == [
        {name: row[name] for name in wanted.names}
        for row in sample_tasks()
        if row["finished_date"] >= MIDNIGHT and row["record_id"] <= 4
    ]
    assert found
    until = rows_of(reader(tasks_url, until=MIDNIGHT.isoformat()))
    assert [row["record_id"] for row in until] == [1]


def test_a_history_without_tasks_has_no_row(database_url: URL) -> None:
    assert rows_of(reader(database_url)) == []


@needs.any_database
def test_the_format_has_the_columns_of_tasks(spark: SparkSession, tasks_url: URL) -> None:
    url = tasks_url.render_as_string(hide_password=False)
    found = spark.read.format("stickybus").options(url=url, table=TABLE).load()
    assert found.schema == SCHEMA
    assert sorted(found.collect()) == in_history(spark, tasks_url)
    assert found.where("queue = 'mail/err'").select("err", "claims").collect() == [
        Row(err='TimeoutError: "größer" als\n10 €, \\N', claims=4)
    ]
    chosen = read_history(
        spark, tasks_url, TABLE, since=MIDNIGHT, columns=["task_id"], ids_per_partition=9
    )
    assert chosen.columns == ["task_id"]
    assert chosen.count() == SAMPLE - 1


def test_states_and_streams_are_refused() -> None:
    given = {"url": "sqlite:///x.db", "table": TABLE}
    with pytest.raises(SourceOptionError, match="finished tasks have no state") as caught:
        ReadOptions.read(given | {"states": "FAILED"})
    assert caught.value.key == "states"
    with pytest.raises(SourceOptionError, match="can't be streamed"):
        StreamOptions.read(given)


# -- archive --------------------------------------------------------------------------------------


def test_tasks_are_in_the_archive_row_by_row_and_no_longer_in_history(
    spark: SparkSession, tasks_url: URL, target: str
) -> None:
    before = in_history(spark, tasks_url)

    done = archive_history(spark, tasks_url, target, table=TABLE, scale=Scale(run_rows=20))

    assert (done.table, done.entries, len(done.runs)) == (TABLE, SAMPLE, 2)
    assert archived(spark, target) == before
    assert in_history(spark, tasks_url) == []
    assert archive_history(spark, tasks_url, target, table=TABLE).entries == 0
    first, second = manifests(spark, target)
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
    files = live_files(manifests(spark, target))
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
    *_others, last = live_files(manifests(spark, target))
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


# -- beside entries -------------------------------------------------------------------------------


@needs.any_database
def test_one_folder_holds_archives_of_entries_and_of_tasks(
    spark: SparkSession, tasks_url: URL, target: str
) -> None:
    write_rows(tasks_url, sample_history())
    tasks, entries = in_history(spark, tasks_url), sorted(read_history(spark, tasks_url).collect())
    archive_history(spark, tasks_url, target, table=TABLE)
    archive_history(spark, tasks_url, target)

    assert archived(spark, target) == tasks
    assert sorted(read_archive(spark, target, "bus_events").collect()) == entries
    with pytest.raises(ArchiveNotFoundError, match=f"archives of bus_events, {TABLE}: say which"):
        read_archive(spark, target)
    assert {one.table for one in find_archived(target)} == {"bus_events"}
    for report in (rolled_audit(archive=target), audit(spark, archive=target)):
        assert [one.table_name for one in report.audited] == ["bus_events"]
    for table, count in (("bus_events", len(entries)), (TABLE, SAMPLE)):
        found = verify_archive(target, table=table, database=tasks_url)
        assert (found.entries, found.damaged) == (count, [])


@needs.any_database
@pytest.mark.parametrize(
    "call",
    [
        lambda spark, url, target: replay_archive(spark, url, target, where="true", table=TABLE),
        lambda _spark, url, target: erase_archived(
            target, database=url, record_ids=[1], table=TABLE
        ),
        lambda _spark, _url, target: find_archived(target, table=TABLE),
        lambda _spark, url, _target: rolled_audit(url=url, tables=[TABLE]),
        lambda spark, url, _target: audit(spark, url=url, tables=[TABLE]),
    ],
    ids=["replay", "erasure", "search", "report", "exact report"],
)
def test_what_takes_entries_alone_refuses_tasks(
    spark: SparkSession, tasks_url: URL, target: str, call: Callable[..., object]
) -> None:
    with pytest.raises(ConfigurationError, match=r"it holds tasks, and .* takes entries alone"):
        call(spark, tasks_url, target)


@needs.any_database
def test_an_archive_of_tasks_alone_has_nothing_for_a_report(
    spark: SparkSession, tasks_url: URL, target: str
) -> None:
    archive_history(spark, tasks_url, target, table=TABLE)
    with pytest.raises(ArchiveNotFoundError, match="holds no archive of entries"):
        rolled_audit(archive=target)
    with pytest.raises(ArchiveNotFoundError, match="holds no archive of entries"):
        find_archived(target)


# -- commands -------------------------------------------------------------------------------------


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


# -- lookups --------------------------------------------------------------------------------------

SEARCHES: list[dict[str, Any]] = [
    {"queue": "push"},
    {"queue": "push", "limit": 0},
    {"queue": "push", "limit": 3},
    {"queue": "mail/err"},
    {"queue": "nowhere"},
    {"ids": ["task-3", "ä", "task-30", "task-99"]},
    {"queue": "mail", "ids": ["task-3", "task-4"]},
    {"queue": "push", "since": MIDNIGHT},
    {"queue": "push", "before": MIDNIGHT},
    {"queue": "push", "since": MIDNIGHT, "before": MIDNIGHT + timedelta(seconds=5), "limit": 2},
]


@needs.any_database
def test_an_archive_answers_as_the_database_did(
    spark: SparkSession, tasks_url: URL, target: str
) -> None:
    # Of two runs, the older one with the higher ids: a task ended late.
    late = finished(31, finished_date=MIDNIGHT - timedelta(seconds=1), queue="push")
    write_tasks(tasks_url, [late])
    work = WorkQueue(tasks_url)
    expected = [work.finished_tasks(**one) for one in SEARCHES]
    work.close()
    archive_history(spark, tasks_url, target, table=TABLE, scale=Scale(run_rows=20))

    for search, tasks in zip(SEARCHES, expected, strict=True):
        found = find_archived_tasks(target, **search)
        assert [finished_of(one, has_value=True) for one in found] == tasks, search
    assert [len(tasks) for tasks in expected[:4]] == [20, 20, 3, 1]
    every = [one.record_id for one in find_archived_tasks(target)]
    assert (len(every), every[0], every[-2:]) == (SAMPLE + 1, SAMPLE, [1, 31])
    [bare] = find_archived_tasks(target, ids=["task-1"], with_values=False)
    assert (bare.value_json, bare.not_archived, bare.claims) == (None, (), 1)


@needs.any_database
def test_a_lookup_says_what_was_not_archived(
    spark: SparkSession, tasks_url: URL, target: str
) -> None:
    archive_history(spark, tasks_url, target, table=TABLE, without=["payload", "errors"])
    write_tasks(tasks_url, [finished(50, err="KeyError: 'ada'")])
    archive_history(spark, tasks_url, target, table=TABLE)

    whole, failed = find_archived_tasks(target, ids=["task-50", "task-5"])

    assert (whole.err, whole.not_archived) == ("KeyError: 'ada'", ())
    assert (failed.err, failed.value_json) == ("TimeoutError:", None)
    assert failed.not_archived == ("payload", "errors")


@needs.any_database
def test_finished_tasks_of_an_archive_are_listed_without_a_database(
    spark: SparkSession,
    tasks_url: URL,
    target: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    midnight = MIDNIGHT.isoformat()
    archive_history(spark, tasks_url, target, table=TABLE, before=MIDNIGHT, without=["payload"])
    archive_history(spark, tasks_url, target, table=TABLE)
    monkeypatch.delenv("STICKYBUS_URL", raising=False)

    def run(*arguments: str) -> Any:
        assert main(["tasks", "finished", "--archive", target, *arguments]) == 0
        return capsys.readouterr().out

    assert [one["id"] for one in json.loads(run("-q", "mail", "-n", "2", "--json"))] == [
        "task-30",
        "task-27",
    ]
    [seven] = json.loads(run("-t", "task-7", "--json"))
    assert (seven["queue"], seven["value_bytes"]) == ("push", "AP8sCg==")
    [first] = json.loads(run("--before", midnight, "--json"))
    assert (first["id"], "value" in first) == ("task-1", False)
    assert "null" not in run("--before", midnight)
    assert "null" in run("-t", "task-8")
    assert "mail/err" in run("-q", "mail/err", "-V")
    assert len(json.loads(run("-n", "0", "--json"))) == SAMPLE


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"ids": "task-1"}, ConfigurationError),
        ({"ids": [1]}, ConfigurationError),
        ({"ids": ["\udcff"]}, ConfigurationError),
        ({"queue": 5}, ConfigurationError),
        ({"queue": "\udcff"}, ConfigurationError),
        ({"limit": "1"}, InvalidPostError),
        ({"since": datetime(2026, 3, 1)}, NaiveDateTimeError),  # noqa: DTZ001 -- it is refused
        ({}, ArchiveNotFoundError),
    ],
)
def test_what_can_not_be_sought_is_refused(
    target: str, given: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        find_archived_tasks(target, **given)
