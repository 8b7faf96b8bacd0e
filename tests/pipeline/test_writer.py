"""Rows are posted as events exactly once per run.

That holds when tasks are tried again and jobs run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StringType, StructField, StructType, TimestampNTZType
from sqlalchemy import URL, Table, delete, func, select

from history_pipeline import StickybusSource
from history_pipeline.errors import RunConflictError, SourceOptionError, WriteError
from history_pipeline.rows.schema import MAIN_SCHEMA, arrow_schema
from history_pipeline.source.options import WriteOptions
from history_pipeline.source.writer import EventWriter, Staged
from sql.database import Database
from sql.statements.staging import POSTED
from sql.tables import entry_tables, queue_posted_runs, queue_staged
from stickybus import PersistentBus
from tests.contract.harness import Order, Recorder

MAIN = entry_tables("bus_events").main
SCHEMA = StructType([MAIN_SCHEMA[name] for name in POSTED])
DUE = datetime(2031, 1, 1, 12, 0, 0, 1, tzinfo=UTC)


def orders(*numbers: int, **columns: Any) -> Iterator[pa.RecordBatch]:
    """Rows of the event `Order`."""
    rows = [
        {"class_name": "Order", "event_json": f'{{"number":{number}}}', **columns}
        for number in numbers
    ]
    return iter([pa.RecordBatch.from_pylist(rows, schema=arrow_schema(SCHEMA))])


def writer(database: Database, run: str = "today", **options: str) -> EventWriter:
    url = database.url.render_as_string(hide_password=False)
    return EventWriter(SCHEMA, WriteOptions.read({"url": url, "run": run, **options}))


def posted(database: Database) -> list[str]:
    """The payloads in the main table, in the order of ids."""
    statement = select(MAIN.c.event_json).order_by(MAIN.c.record_id)
    return database.fetch(lambda connection: list(connection.execute(statement).scalars()))


def rows_in(database: Database, table: Table) -> int:
    return database.fetch(
        lambda connection: int(
            connection.execute(select(func.count()).select_from(table)).scalar_one()
        )
    )


def test_rows_are_posted_with_all_their_columns_for_any_node(database: Database) -> None:
    job = writer(database, queue="billing")
    full = {
        "user_token": "a",
        "future_user_token": "b",
        "search_key1": -(2**63),
        "search_key2": 7,
        "effective_date": DUE,
        "headers": '{"käse":"ja"}',
        "replay_of": 12,
        "queue_name": "shop",
    }
    job.commit([job.write(orders(1, **full)), replace(job.write(orders(2)), part=1)])
    rows = database.fetch(lambda connection: connection.execute(select(MAIN)).mappings().all())
    first, second = sorted(rows, key=lambda row: str(row["event_json"]))
    assert {key: first[key] for key in full} == full
    assert (first["lane"], first["processing_state"], first["creating_owner"]) == (
        "",
        "AVAILABLE",
        "spark",
    )
    assert (second["queue_name"], second["class_name"], second["codec"]) == (
        "billing",
        "Order",
        "json",
    )
    assert second["effective_date"] == second["created_date"]
    assert abs((second["created_date"] - datetime.now(UTC)).total_seconds()) < 60
    assert rows_in(database, queue_staged) == 0


def test_a_bus_handles_what_was_posted(database: Database, database_url: URL) -> None:
    bus, recorder = PersistentBus(database_url), Recorder()
    bus.subscribe(Order)(recorder)
    with bus:
        job = writer(database)
        job.commit([job.write(orders(1, 2, 3))])
        recorder.wait(3)
    assert recorder.numbers() == [1, 2, 3]


def test_what_a_lost_attempt_has_staged_is_not_posted(database: Database) -> None:
    job = writer(database)
    job.write(orders(1, 2))  # the whole of it, and then its answer was lost
    job.commit([job.write(orders(1, 2)), replace(job.write(orders(3)), part=1)])
    assert sorted(posted(database)) == ['{"number":1}', '{"number":2}', '{"number":3}']
    assert rows_in(database, queue_staged) == 0


def test_a_run_is_posted_once_however_often_its_job_runs(database: Database) -> None:
    for _ in range(2):
        job = writer(database)
        job.commit([job.write(orders(1, 2))])
    assert posted(database) == ['{"number":1}', '{"number":2}']
    assert rows_in(database, queue_staged) == 0
    other = writer(database, "tomorrow")
    other.commit([other.write(orders(3))])
    assert len(posted(database)) == 3


def test_a_run_that_two_jobs_commit_at_once_is_posted_once(database: Database) -> None:
    jobs = [writer(database) for _ in range(4)]
    staged = [job.write(orders(1, 2)) for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        ended = [
            pool.submit(job.commit, [message]) for job, message in zip(jobs, staged, strict=True)
        ]
        errors = [future.exception() for future in ended]
    assert errors == [None] * 4
    assert posted(database) == ['{"number":1}', '{"number":2}']


@pytest.mark.parametrize(
    ("numbers", "table"), [((1, 2, 3), "bus_events"), ((1, 2), "notifications")]
)
def test_other_rows_of_a_run_that_was_posted_are_refused(
    database: Database, numbers: tuple[int, ...], table: str
) -> None:
    job = writer(database)
    job.commit([job.write(orders(1, 2))])
    again = writer(database, table=table)
    message = again.write(orders(*numbers))
    with pytest.raises(RunConflictError, match="'today' has posted 2 entries into bus_events"):
        again.commit([message])
    assert len(posted(database)) == 2
    assert rows_in(database, entry_tables("notifications").main) == 0


def test_an_abort_removes_what_its_own_job_has_staged_and_nothing_that_was_posted(
    database: Database,
) -> None:
    job, other = writer(database), writer(database)
    job.write(orders(1))
    message = other.write(orders(1))
    job.abort([None])
    assert rows_in(database, queue_staged) == 1
    other.commit([message])
    other.abort([message])
    assert posted(database) == ['{"number":1}']


def test_nothing_is_posted_if_staged_rows_are_missing(database: Database) -> None:
    job = writer(database)
    messages = [job.write(orders(1, 2)), replace(job.write(orders(3)), part=1)]
    first = delete(queue_staged).where(
        queue_staged.c.attempt == messages[0].attempt, queue_staged.c.place == 1
    )
    database.write(lambda connection: connection.execute(first))
    with pytest.raises(WriteError, match="partition 0 has 1 rows, not 2"):
        job.commit(messages)
    with pytest.raises(WriteError, match="1 partitions of run 'today' are missing"):
        job.commit([None, messages[1]])
    assert posted(database) == []
    assert rows_in(database, queue_posted_runs) == 0


def test_a_job_without_rows_posts_nothing(database: Database) -> None:
    job = writer(database)
    job.commit([])
    job.commit([job.write(orders())])
    assert posted(database) == []


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"event_json": "{"}, "malformed|truncated"),
        ({"event_json": None}, "exactly one of event_json and event_bytes"),
        ({"event_bytes": b"x"}, "exactly one of event_json and event_bytes"),
        (
            {"event_json": '"' + "x" * 2_000_000 + '"'},
            "payload is 2,000,002 bytes, the cap is 1,048,576",
        ),
        ({"class_name": "x" * 300}, "class_name"),
        ({"class_name": None}, "class_name"),
        ({"user_token": "x" * 37}, "user_token is not allowed"),
        ({"headers": '{"a":1}'}, "str"),
        ({"queue_name": "a\0b"}, "NUL"),
    ],
)
def test_a_row_that_can_not_be_posted_is_refused(
    columns: dict[str, Any], reason: str, tmp_path: Any
) -> None:
    options = WriteOptions(url=f"sqlite:///{tmp_path}/x.db", run="today")
    with pytest.raises(WriteError, match=reason):
        EventWriter(SCHEMA, options).write(orders(1, **columns))


_TEXTS = [StructField("class_name", StringType()), StructField("event_json", StringType())]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (_TEXTS[1:], "no column class_name"),
        (_TEXTS[:1], "no column event_json"),
        ([*_TEXTS, StructField("color", StringType())], "no column 'color'"),
        ([*_TEXTS, StructField("search_key1", StringType())], "of type string, not bigint"),
        ([*_TEXTS, StructField("effective_date", TimestampNTZType())], "not timestamp"),
    ],
)
def test_columns_that_no_event_has_are_refused(fields: list[StructField], reason: str) -> None:
    with pytest.raises(WriteError, match=reason):
        EventWriter(StructType(fields), WriteOptions(url="sqlite:///x.db", run="today"))


@pytest.mark.parametrize(
    ("options", "key"),
    [({"run": ""}, "run"), ({"run": "x" * 65}, "run"), ({"table": "bus_events_history"}, "table")],
)
def test_an_option_that_can_not_work_is_refused(options: dict[str, str], key: str) -> None:
    with pytest.raises(SourceOptionError, match=key):
        WriteOptions.read({"url": "sqlite:///x.db", "run": "today"} | options)


def test_events_overwrite_nothing() -> None:
    with pytest.raises(SourceOptionError, match="append"):
        StickybusSource({"url": "sqlite:///x.db", "run": "today"}).writer(SCHEMA, overwrite=True)


def test_a_message_says_what_was_staged(database: Database) -> None:
    message = writer(database).write(orders(*range(1_500)))
    assert message == Staged(0, message.attempt, 1_500)


def _failing_once(rows: Iterable[Row]) -> Iterable[Row]:
    """Hand most of the rows on, and then fail in the first attempt of a task."""
    context = TaskContext.get()
    assert context is not None
    for place, row in enumerate(rows):
        if place == 2_500 and context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails")
        yield row


def test_spark_posts_each_row_once_though_tasks_fail_and_the_job_runs_twice(
    spark: SparkSession, database: Database
) -> None:
    payloads = [f'{{"number":{number}}}' for number in range(6_000)]
    rows = spark.sparkContext.parallelize([Row(event_json=payload) for payload in payloads], 2)
    events = spark.createDataFrame(rows.mapPartitions(_failing_once), "event_json string")
    url = database.url.render_as_string(hide_password=False)
    # So that an attempt has staged some of its rows when it fails.
    batch_size = "spark.sql.execution.arrow.maxRecordsPerBatch"
    default = str(spark.conf.get(batch_size))
    spark.conf.set(batch_size, "1000")
    try:
        for _ in range(2):
            job = events.write.format("stickybus").options(url=url, run="nightly", event="Order")
            job.mode("append").save()
    finally:
        spark.conf.set(batch_size, default)
    assert sorted(posted(database)) == sorted(payloads)
    assert rows_in(database, queue_posted_runs) == 2
    assert rows_in(database, queue_staged) == 0
