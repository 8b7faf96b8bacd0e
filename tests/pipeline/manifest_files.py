"""Files of manifests: as former versions wrote them, and changed by somebody."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession
from sqlalchemy import URL

from history_pipeline import archive_history
from history_pipeline.archives import manifest as manifests

FROZEN = Path(__file__).parent / "frozen"
"""Archives as former versions wrote them, and as this one does: they must verify for ever."""
FROZEN_TASKS = Path(__file__).parent / "frozen_tasks"
"""Likewise of finished tasks: `sample_tasks()` in two runs, then compacted, and two erased."""
MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)


def two_runs(spark: SparkSession, url: URL, target: Path) -> list[Path]:
    """Archive in two runs; the files of the two manifests."""
    archive_history(spark, url, str(target), before=MIDNIGHT)
    archive_history(spark, url, str(target))
    return sorted((target / "bus_events/manifests").glob("*.json"))


def changed(content: bytes, **fields: Any) -> bytes:
    """A manifest with other values, by somebody who also gives it the SHA-256 of these."""
    return msgspec.structs.replace(manifests.decoded(content, "it"), **fields).encoded()
