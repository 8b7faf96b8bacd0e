"""The source reads what plain SQL reads, on every database."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, DataFrameReader, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType
from sqlalchemy import URL, Connection, Engine, create_engine, event, select, text

from history_pipeline import read_history
from history_pipeline.errors import SourceOptionError
from history_pipeline.rows.schema import HISTORY_SCHEMA, arrow_schema
from history_pipeline.source import pages
from history_pipeline.source.options import ReadOptions
from history_pipeline.source.reader import HistoryReader, ranges
from history_pipeline.source.stretches import LOOKS, Stretch
from queue_core.model.states import State
from sql.doctor.base import Step
from sql.registry import doctor_of
from sql.tables import entry_tables
from tests import requirements as needs
from tests.pipeline.sample import START, ended, sample_history, write_rows

ALL = [row["record_id"] for row in sample_history()]
MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)


def fingerprint(rows: DataFrame) -> Row:
    """Count and order-free checksum of all columns."""
    found = rows.agg(
        f.count("*").alias("rows"),
        f.sum(f.xxhash64(*rows.columns).cast("decimal(38,0)")).alias("sum"),
    ).first()
    assert found is not None
    return found


def plain(spark: SparkSession, url: URL) -> DataFrame:
    """The rows as SQLAlchemy reads them."""
    history = entry_tables("bus_events").history
    engine = create_engine(url)
    with engine.connect() as connection:
        rows = [tuple(row) for row in connection.execute(select(*history.c))]
    engine.dispose()
    return spark.createDataFrame(rows, HISTORY_SCHEMA)


def test_the_source_reads_the_rows_that_plain_sql_reads(
    spark: SparkSession, history_url: URL
) -> None:
    expected = plain(spark, history_url)
    found = read_history(spark, history_url)
    assert found.schema == HISTORY_SCHEMA
    assert sorted(found.collect()) == sorted(expected.collect())
    assert fingerprint(found) == fingerprint(expected)
    assert found.count() == len(sample_history())


@needs.any_database
def test_columns_and_ids_are_chosen_in_any_order(spark: SparkSession, history_url: URL) -> None:
    wanted = ["finished_date", "event_json", "record_id"]
    found = read_history(spark, history_url, first_id=12, last_id=15, columns=wanted)
    assert found.columns == wanted
    expected = [
        tuple(row[name] for name in wanted)
        for row in sample_history()
        if 12 <= row["record_id"] <= 15
    ]
    assert [(_utc(row[0]), *row[1:]) for row in found.sort("record_id").collect()] == expected


def test_dates_and_states_are_chosen_by_any_database(history_url: URL) -> None:
    sample = sample_history()
    reader = _reader(history_url, since="2026-03-02T00:00:00Z")
    [midnight] = [row for row in sample if row["record_id"] == 10]
    edge = midnight["finished_date"].isoformat()
    assert _ids(reader) == [row["record_id"] for row in sample if row["finished_date"] >= MIDNIGHT]
    assert _ids(_reader(history_url, since=edge, first_id="9", last_id="11")) == [10, 11]
    assert _ids(_reader(history_url, until=edge, first_id="9", last_id="11")) == [9]
    assert _ids(_reader(history_url, states="FAILED, REMOVED", ids_per_partition="5")) == [
        row["record_id"] for row in sample if row["processing_state"] in {"FAILED", "REMOVED"}
    ]


@needs.any_database
def test_dates_and_states_are_arguments_too(spark: SparkSession, history_url: URL) -> None:
    found = read_history(
        spark, history_url, since=MIDNIGHT, until=MIDNIGHT + timedelta(days=1), states=State.FAILED
    )
    assert sorted(row.record_id for row in found.collect()) == [17, 18, 19, 27, 40]


@needs.any_database
def test_a_table_is_read_in_ranges_of_ids(spark: SparkSession, history_url: URL) -> None:
    found = read_history(spark, history_url, ids_per_partition=7)
    assert found.rdd.getNumPartitions() == 6
    few = read_history(spark, history_url, ids_per_partition=7, max_partitions=2)
    assert few.rdd.getNumPartitions() == 2
    assert fingerprint(found) == fingerprint(read_history(spark, history_url))


@needs.any_database
def test_an_empty_history_has_the_schema_and_no_rows(
    spark: SparkSession, database_url: URL
) -> None:
    found = read_history(spark, database_url)
    assert found.schema == HISTORY_SCHEMA
    assert found.collect() == []


def test_only_the_columns_asked_for_are_read_from_any_database(history_url: URL) -> None:
    wanted = StructType(
        [HISTORY_SCHEMA[name] for name in ("last_error", "finished_date", "search_key2")]
    )
    reader = _reader(history_url, wanted, first_id="17", last_id="18")
    (page,) = (page for part in reader.partitions() for page in reader.read(part))
    assert page.schema == arrow_schema(wanted)
    expected = [row for row in sample_history() if row["record_id"] in {17, 18}]
    assert page.to_pylist() == [{name: row[name] for name in wanted.names} for row in expected]


def test_an_empty_history_has_no_page(database_url: URL) -> None:
    assert _ids(_reader(database_url)) == []


def test_what_a_main_table_does_not_have_is_null(database_url: URL) -> None:
    row = {
        key: value
        for key, value in ended(7, "AVAILABLE").items()
        if key in entry_tables("bus_events").main.c
    }
    write_rows(database_url, [row], table="bus_events")
    reader = _reader(database_url, table="bus_events")
    (found,) = (
        row
        for part in reader.partitions()
        for page in reader.read(part)
        for row in page.to_pylist()
    )
    assert found == {name: row.get(name) for name in HISTORY_SCHEMA.names}


@needs.any_database
def test_a_dataframe_that_is_used_again_after_a_filter_has_all_its_rows(
    spark: SparkSession, history_url: URL
) -> None:
    """The source takes no filter, whatever the switch says.

    Spark keeps a reader with the filters that it was given.
    """
    key = "spark.sql.python.filterPushdown.enabled"
    default = str(spark.conf.get(key))
    spark.conf.set(key, "true")
    try:
        rows = _source(spark, history_url, ids_per_partition="7").load()
        failed = rows.where("processing_state = 'FAILED' and record_id > 17").select("record_id")
        assert sorted(row.record_id for row in failed.collect()) == [18, 19, 27, 40]
        assert rows.count() == len(ALL)
    finally:
        spark.conf.set(key, default)


def test_pages_are_small_enough_for_rows_of_any_size(
    history_url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "FIRST_ROWS", 2)
    monkeypatch.setattr(pages, "PAGE_BYTES", 2_000)
    reader = _reader(history_url)
    sizes = [page.num_rows for part in reader.partitions() for page in reader.read(part)]
    assert max(sizes) < 15
    assert _ids(reader) == [row["record_id"] for row in sample_history()]


def test_an_id_that_stands_twice_in_history_is_read_twice(
    database_url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "FIRST_ROWS", 2)
    twice = [
        ended(number, finished_date=START + timedelta(seconds=day))
        for number in (1, 2, 3)
        for day in range(3)
    ]
    write_rows(database_url, twice)
    reader = _reader(database_url)
    assert _ids(reader) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("first_id", "one"),
        ("ids_per_partition", "0"),
        ("max_partitions", "0"),
        ("last_id", "1.5"),
        ("last_id", "9223372036854775808"),
        ("since", "2026-03-01"),
        ("states", "FAILED,LOST"),
        ("url", ""),
    ],
)
def test_an_option_that_can_not_work_is_refused(key: str, value: str) -> None:
    with pytest.raises(SourceOptionError, match=key):
        ReadOptions.read({"url": "sqlite:///x.db"} | {key: value})


def test_a_main_table_has_no_date_to_choose_by() -> None:
    given = {"url": "sqlite:///x.db", "table": "bus_events", "until": "2026-03-01T00:00:00Z"}
    with pytest.raises(SourceOptionError, match="no history table"):
        ReadOptions.read(given)


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(ReadOptions("postgresql://user:secret@host/name"))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ([Stretch(1, 2**62, 2**62)], 7),
        ([Stretch(1, 2**62, 250)], 3),
        ([Stretch(1, 100, 100), Stretch(2**40, 2**40 + 99, 100)], 2),
        ([Stretch(1, 1, 1), Stretch(5, 5, 1), Stretch(2**40, 2**40 + 198, 199)], 3),
        ([], 1),
    ],
)
def test_ranges_follow_the_rows_and_leave_out_no_id_between(
    where: list[Stretch], expected: int
) -> None:
    found = ranges(where, width=100, most=7)
    assert len(found) == expected
    first, last = (where[0].first, where[-1].last) if where else (1, 0)
    assert (found[0].first, found[-1].last) == (first, last)
    assert all(one.last + 1 == following.first for one, following in itertools.pairwise(found))
    assert all(one.first <= one.last for one in found) == bool(where)


FAR = 10**12
GAPS = {
    "two crowds far apart": [*range(1, 301), *range(FAR, FAR + 300)],
    "one far behind": [*range(1, 600), FAR],
    "each far from the next": list(range(1, 600 * FAR, FAR)),
    "none": list(range(1, 601)),
}
"""600 ids each."""


@pytest.mark.parametrize("which", GAPS)
def test_the_number_of_tasks_follows_the_rows_and_few_looks_tell_where_they_are(
    database_url: URL, engine: Engine, which: str
) -> None:
    if engine.dialect.name == "postgresql":
        with engine.begin() as connection:
            # Where it has counted so few rows, it would rather read them all at once.
            connection.exec_driver_sql(
                "ALTER TABLE bus_events_history SET (autovacuum_enabled = off)"
            )
    write_rows(database_url, [ended(1) | {"record_id": one} for one in GAPS[which]])
    reader, sent = _reader(database_url, ids_per_partition="100"), list[tuple[str, Any]]()

    def catch(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        sent.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", catch)
    try:
        parts = reader.partitions()
    finally:
        event.remove(Engine, "before_cursor_execute", catch)

    assert 6 <= len(parts) <= 9
    assert _ids(reader) == GAPS[which]
    asked = [one for one in sent if "record_id" in one[0]]
    assert len(asked) <= 2 * LOOKS + 2
    doctor = doctor_of(engine.dialect.name)
    with engine.connect() as connection:
        for statement, parameters in asked:
            plan = connection.exec_driver_sql(doctor.explain + statement, parameters)
            faults = doctor.faults([dict(row) for row in plan.mappings()], "bus_events_history")
            assert [one for one in faults if one.step is Step.SCAN] == [], statement


def _source(spark: SparkSession, url: URL, **options: str) -> DataFrameReader:
    return spark.read.format("stickybus").options(
        url=url.render_as_string(hide_password=False), **options
    )


def _reader(url: URL, schema: StructType = HISTORY_SCHEMA, **options: str) -> HistoryReader:
    """A reader as Spark makes it."""
    given = {"url": url.render_as_string(hide_password=False), **options}
    return HistoryReader(schema, ReadOptions.read(given))


def _ids(reader: HistoryReader) -> list[int]:
    pages_read = (page for part in reader.partitions() for page in reader.read(part))
    return sorted(
        record_id for page in pages_read for record_id in page.column("record_id").to_pylist()
    )


def _utc(local: datetime) -> datetime:
    """Spark gives dates in this machine's own zone, without saying so."""
    return local.astimezone(UTC)


@needs.any_database
def test_a_text_that_is_no_utf_8_is_read_with_replacements(
    history_url: URL, engine: Engine
) -> None:
    with engine.begin() as connection:
        broken = text(
            "UPDATE bus_events_history SET event_json = CAST(x'ff41' AS TEXT) WHERE record_id = 7"
        )
        connection.execute(broken)
    reader = _reader(history_url, first_id="7")
    first = (
        next(page for part in reader.partitions() for page in reader.read(part))
        .slice(0, 1)
        .to_pylist()
    )
    assert [(row["record_id"], row["event_json"]) for row in first] == [(7, "\ufffdA")]


@needs.server
def test_a_page_is_read_again_when_its_connection_broke(
    history_url: URL, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "FIRST_ROWS", 10)
    reader = _reader(history_url)
    (part,) = reader.partitions()
    reading = reader.read(part)
    first = next(reading)
    with engine.begin() as connection:
        _kill_others(connection)
    rest = [record_id for page in reading for record_id in page.column("record_id").to_pylist()]
    assert [*first.column("record_id").to_pylist(), *rest] == ALL


def _kill_others(connection: Connection) -> None:
    """End all other sessions of the database."""
    if connection.dialect.name == "postgresql":
        mine = "datname = current_database() AND pid <> pg_backend_pid()"
        ended = connection.execute(
            text(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {mine}")
        )
        assert ended.scalars().all() == [True]
        return
    schema = "information_schema" if connection.dialect.is_mariadb else "performance_schema"  # type: ignore[attr-defined]
    others = f"SELECT id FROM {schema}.processlist WHERE db = database() AND id <> connection_id()"
    (session,) = connection.execute(text(others)).scalars()
    connection.execute(text(f"KILL {int(session)}"))
