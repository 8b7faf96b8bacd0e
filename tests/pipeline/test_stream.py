"""A stream hands over each row of history once: also rows that commit late, and after a restart."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from sqlalchemy import URL, Connection, delete, insert

from history_pipeline import archive_history
from history_pipeline.errors import SourceOptionError, StreamLossError
from history_pipeline.rows.schema import HISTORY_SCHEMA
from history_pipeline.source.options import StreamOptions
from history_pipeline.source.stream import HistoryStreamReader
from sql.database import Database
from sql.tables import entry_tables
from tests import requirements as needs
from tests.contract.harness import eventually
from tests.pipeline.sample import START, TABLE, ended, sample_history, write_rows

MAIN, HISTORY = entry_tables("bus_events").main, entry_tables("bus_events").history
SAMPLE = [row["record_id"] for row in sample_history()]
Offset = dict[str, Any]


class Stream:
    """A reader driven by hand, as Spark drives it."""

    def __init__(self, url: URL, **options: Any) -> None:
        given = {"url": url.render_as_string(hide_password=False), "settle_seconds": 0.2} | options
        self._options = StreamOptions.read({key: str(value) for key, value in given.items()})
        self.position = self._reader().initialOffset()

    def _reader(self) -> HistoryStreamReader:
        return HistoryStreamReader(HISTORY_SCHEMA, self._options)

    def plan(self, limit: ReadLimit | None = None) -> Offset:
        """The position after the next batch."""
        return self._reader().latestOffset(self.position, limit or ReadAllAvailable())

    def rows(self, end: Offset) -> list[int]:
        """The ids of the batch that ends there, sorted."""
        reader = self._reader()
        batches = (
            batch for part in reader.partitions(self.position, end) for batch in reader.read(part)
        )
        return sorted(
            record_id for batch in batches for record_id in batch.column("record_id").to_pylist()
        )

    def batch(self, limit: ReadLimit | None = None) -> list[int]:
        """The ids of the next batch, handed over."""
        end = self.plan(limit)
        found = self.rows(end)
        self.position = end
        return found


@pytest.fixture
def database(history_url: URL) -> Iterator[Database]:
    """The database with `sample_history()`."""
    database = Database(history_url)
    yield database
    database.close()


@contextmanager
def held_open(database: Database, statement: Any) -> Iterator[Callable[[], None]]:
    """A transaction that has run `statement`.

    It commits when the given function is called, or at the end.
    """
    ran, may_commit = threading.Event(), threading.Event()

    def work() -> None:
        with database.begin() as connection:
            connection.execute(statement)
            ran.set()
            may_commit.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    assert ran.wait(20)

    def commit() -> None:
        may_commit.set()
        thread.join()

    try:
        yield commit
    finally:
        commit()


def test_a_stream_hands_over_all_rows_and_then_only_new_ones(history_url: URL) -> None:
    stream = Stream(history_url)
    assert stream.batch() == SAMPLE
    before = stream.position
    assert stream.batch() == []
    assert stream.position == before
    # Their ids are smaller than others that were handed over.
    write_rows(history_url, [ended(12, finished_date=_ago(90)), ended(13, finished_date=_ago(80))])
    stream = _after(stream, _ago(100))
    assert stream.batch() == [12, 13]


def test_a_row_waits_until_its_date_is_as_old_as_the_lag(history_url: URL) -> None:
    write_rows(history_url, [ended(50, finished_date=_ago(30))])
    assert Stream(history_url, lag_seconds=60).batch() == SAMPLE
    assert Stream(history_url, lag_seconds=10).batch() == [*SAMPLE, 50]


def test_a_row_of_a_transaction_that_stays_open_is_handed_over_when_it_commits(
    history_url: URL, database: Database
) -> None:
    stream = Stream(history_url)
    late = insert(HISTORY).values(ended(12))
    with held_open(database, late) as commit:
        assert stream.batch() == []
        commit()
        assert stream.batch() == [*SAMPLE[:11], 12, *SAMPLE[11:]]


def test_a_transaction_that_is_undone_holds_a_stream_back_no_longer(
    history_url: URL, database: Database
) -> None:
    stream = Stream(history_url)
    with database.engine.connect() as connection, connection.begin() as transaction:
        connection.execute(insert(HISTORY).values(ended(12)))
        assert stream.batch() == []
        transaction.rollback()
    assert stream.batch() == SAMPLE


def test_the_outcome_of_an_entry_that_still_runs_is_handed_over_whatever_its_date(
    history_url: URL, database: Database
) -> None:
    # Its handler has ended, and the database could not be reached since.
    _run(database, 12)
    stream = Stream(history_url)
    assert stream.batch() == SAMPLE
    stream = _after(stream, _ago(200))
    write_rows(history_url, [ended(13, finished_date=_ago(100))])
    assert stream.batch() == [13]
    _finish(database, ended(12))
    assert stream.batch() == [12]
    assert stream.batch() == []


def test_an_entry_that_ran_is_handed_over_once_however_late_it_ends(
    history_url: URL, database: Database
) -> None:
    _run(database, 12)
    stream = _after(Stream(history_url), _ago(200))
    write_rows(history_url, [ended(13, finished_date=_ago(150))])
    assert stream.batch() == [13]
    stream = _after(stream, _ago(120))
    _finish(database, ended(12, finished_date=_ago(90), error_count=1))
    assert stream.batch() == [12]
    assert stream.batch() == []


def test_a_batch_is_the_same_when_it_is_planned_and_read_again(
    history_url: URL, database: Database
) -> None:
    _run(database, 12)
    stream = Stream(history_url, rows_per_partition=7)
    end = stream.plan()
    _finish(database, ended(12))
    # It was running when the batch was planned: its turn is the next one.
    assert stream.rows(end) == SAMPLE
    assert stream.rows(end) == SAMPLE
    stream.position = end
    assert stream.batch() == [12]


def test_batches_have_about_as_many_rows_as_the_limit_says(history_url: URL) -> None:
    stream = Stream(history_url)
    sizes, ids = list[int](), list[int]()
    while batch := stream.batch(ReadMaxRows(10)):
        sizes.append(len(batch))
        ids += batch
    assert max(sizes) <= 10
    assert sorted(ids) == SAMPLE


def test_rows_that_ended_together_are_not_parted(database_url: URL) -> None:
    write_rows(database_url, [ended(number, finished_date=START) for number in range(1, 8)])
    stream = Stream(database_url)
    assert stream.batch(ReadMaxRows(3)) == [1, 2, 3, 4, 5, 6, 7]
    assert stream.batch(ReadMaxRows(3)) == []


def test_a_stream_may_start_at_a_date(history_url: URL) -> None:
    after = ended(20)["finished_date"]
    expected = [row["record_id"] for row in sample_history() if row["finished_date"] > after]
    assert Stream(history_url, after=after.isoformat()).batch() == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("after", "yesterday"),
        ("after", "2026-03-01"),
        ("lag_seconds", "-1"),
        ("table", "bus_events"),
    ],
)
def test_an_option_that_can_not_work_is_refused(key: str, value: str) -> None:
    with pytest.raises(SourceOptionError, match=key):
        StreamOptions.read({"url": "sqlite:///x.db", key: value})


def test_spark_reads_on_where_it_stopped(
    spark: SparkSession, history_url: URL, tmp_path: Path
) -> None:
    query = SparkQuery(spark, history_url, tmp_path, lag_seconds=0)
    assert query.available_now() == SAMPLE
    write_rows(
        history_url, [ended(12, finished_date=_ago(0)), ended(50, finished_date=_ago(-3600))]
    )
    assert query.available_now() == [12]
    assert query.available_now() == []


@pytest.mark.timeout(280)
def test_spark_reads_rows_as_they_come(
    spark: SparkSession, database_url: URL, tmp_path: Path
) -> None:
    query = SparkQuery(spark, database_url, tmp_path, lag_seconds=0)
    with query.running():
        write_rows(database_url, [ended(1), ended(2)])
        # Spark starts first, which takes a while where the machine is busy.
        eventually(lambda: len(query.ids) == 2, "the first rows are handed over", seconds=100)
        write_rows(database_url, [ended(3, finished_date=datetime.now(UTC))])
        eventually(
            lambda: sorted(query.ids) == [1, 2, 3], "the last row is handed over", seconds=100
        )


class SparkQuery:
    """A query of Spark over a database's history."""

    def __init__(self, spark: SparkSession, url: URL, folder: Path, **options: Any) -> None:
        self.ids: list[int] = []
        stream = spark.readStream.format("stickybus").options(
            url=url.render_as_string(hide_password=False), table=TABLE, **options
        )
        self._writer = (
            stream.load()
            .select("record_id")
            .writeStream.option("checkpointLocation", str(folder / "checkpoint"))
            .foreachBatch(self._take)
        )

    def _take(self, rows: DataFrame, _batch: int) -> None:
        self.ids += [row.record_id for row in rows.collect()]

    def available_now(self) -> list[int]:
        """The ids that one run over all that is there hands over."""
        self.ids.clear()
        self._writer.trigger(availableNow=True).start().awaitTermination()
        return sorted(self.ids)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Look for rows again and again."""
        query = self._writer.trigger(processingTime="100 milliseconds").start()
        try:
            yield
        finally:
            query.stop()


def _ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def _after(stream: Stream, moment: datetime) -> Stream:
    """The stream, as if its last batch had been planned at an earlier moment."""
    stream.position = {**stream.position, "finished": moment.isoformat()}
    return stream


def _run(database: Database, record_id: int) -> None:
    """An entry that a node runs, which was due at the start of the sample."""
    row = {key: value for key, value in ended(record_id, "IN_PROCESSING").items() if key in MAIN.c}
    row["effective_date"] = START
    database.write(lambda connection: connection.execute(insert(MAIN).values(row)))


def _finish(database: Database, row: dict[str, Any]) -> None:
    """Move an entry to history, as its node does."""

    def work(connection: Connection) -> None:
        connection.execute(delete(MAIN).where(MAIN.c.record_id == row["record_id"]))
        connection.execute(insert(HISTORY).values(row))

    database.write(work)


@needs.any_database
def test_a_stream_fails_if_what_it_has_not_handed_over_was_archived(
    spark: SparkSession, history_url: URL, database: Database, tmp_path: Path
) -> None:
    stream, loose = Stream(history_url), Stream(history_url, fail_on_data_loss=False)
    first = stream.plan(ReadMaxRows(10))
    archive_history(
        spark, history_url, str(tmp_path / "archive"), before=datetime(2026, 3, 2, tzinfo=UTC)
    )

    with pytest.raises(StreamLossError, match=r"moved entries to the archive .* not handed over"):
        stream.plan()
    with pytest.raises(StreamLossError, match="fail_on_data_loss"):
        stream.rows(first)  # planned before, read afterwards
    assert 1 not in loose.batch()
    passed = _after(Stream(history_url), datetime(2026, 3, 2, tzinfo=UTC))
    assert passed.batch() == [number for number in SAMPLE if number > 3]


def test_a_switch_that_is_none_is_refused() -> None:
    with pytest.raises(SourceOptionError, match="neither true nor false"):
        StreamOptions.read({"url": "sqlite:///x.db", "fail_on_data_loss": "perhaps"})
