"""Finished tasks are read by the data source."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StructType
from sqlalchemy import URL

from history_pipeline import read_history
from history_pipeline.errors import SourceOptionError
from history_pipeline.rows.kind import TASKS
from history_pipeline.rows.schema import spark_schema
from history_pipeline.source.options import ReadOptions, StreamOptions
from history_pipeline.source.reader import HistoryReader
from tests import requirements as needs
from tests.pipeline.archived_tasks import MIDNIGHT, SAMPLE, in_history
from tests.pipeline.tasks import TABLE, sample_tasks

SCHEMA = spark_schema(TASKS.columns)


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
