"""The sample of finished tasks, as Spark reads it from a database and from an archive."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import Row, SparkSession
from sqlalchemy import URL

from history_pipeline import read_archive, read_history
from tests.pipeline.tasks import TABLE, sample_tasks

SAMPLE = len(sample_tasks())
MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)


def in_history(spark: SparkSession, url: URL) -> list[Row]:
    return sorted(read_history(spark, url, TABLE).collect())


def archived(spark: SparkSession, target: str) -> list[Row]:
    return sorted(read_archive(spark, target, TABLE).collect())
