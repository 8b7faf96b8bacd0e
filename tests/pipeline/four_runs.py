"""An archive of four runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL

from history_pipeline import Scale, archive_history


@pytest.fixture
def target(spark: SparkSession, history_url: URL, tmp_path: Path) -> str:
    """An archive of four runs, with one file of 1 March and four of 2 March."""
    target = str(tmp_path / "archive")
    archive_history(spark, history_url, target, scale=Scale(run_rows=10))
    return target
