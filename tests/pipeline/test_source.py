"""The source reads what plain SQL reads, on every database."""

from __future__ import annotations

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from sqlalchemy import URL, create_engine, select

from history_pipeline.schema import HISTORY_SCHEMA
from history_pipeline.sources import read_history
from sql.tables import entry_tables
from tests.pipeline.sample import sample_history


def fingerprint(rows: DataFrame) -> Row:
    """Count and order-free checksum of all columns."""
    found = rows.agg(
        f.count("*").alias("rows"), f.sum(f.xxhash64(*rows.columns).cast("decimal(38,0)")).alias("sum")
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


def test_the_source_reads_the_rows_that_plain_sql_reads(spark: SparkSession, history_url: URL) -> None:
    expected = plain(spark, history_url)
    found = read_history(spark, history_url)
    assert found.schema == HISTORY_SCHEMA
    assert sorted(found.collect()) == sorted(expected.collect())
    assert fingerprint(found) == fingerprint(expected)
    assert found.count() == len(sample_history())
