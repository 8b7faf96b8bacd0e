"""The statistics in SQL are those of the report, on the same rows of each database."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from sqlalchemy import URL

import stickybus
from history_pipeline.job import audit
from tests.pipeline.random_history import random_history
from tests.pipeline.sample import write_rows

FIGURES = ("count", "avg", "min", "max", "p50", "p90", "p95", "p99")
