"""An archive has what a bare driver read from history, and a report what SQL counts in its files.

DuckDB reads the files that the manifests name. Neither the driver nor DuckDB use the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import URL

from benchmarks.archive_sql import ArchiveSQL, files_of
from history_pipeline import Period, Scale, archive_history, audit, compact_archive, rolled_audit
from tests.pipeline.comparison import differences
from tests.pipeline.plain_driver import Columns, history_columns
from tests.pipeline.random_history import random_history
from tests.pipeline.sample import TABLE, ended, sample_history, write_rows

MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
UNTIL = MIDNIGHT + timedelta(seconds=5)
"""Later rows are left out of the figures. The day before, and the week before it, have some."""
BEYOND_DOUBLES = 2**53
"""From here on floating-point numbers can't tell one id from the next."""


def mixed_history() -> list[dict[str, Any]]:
    """Rows of all kinds: the sample, some about midnight, two ends of one entry, large ids."""
    midnights = [
        ended(record_id, finished_date=MIDNIGHT + timedelta(microseconds=micros))
        for record_id, micros in ((41, -1), (42, 0), (43, 1))
    ]
    twice = ended(44, origin_id=41)
    large = random_history(7, 600)
    for row in large:
        row["record_id"] += BEYOND_DOUBLES
    return [*sample_history(), *midnights, twice, *large]


@pytest.fixture
def before(spark: SparkSession, database_url: URL, target_path: Path) -> Columns:
    """History as the driver read it, before two runs archived it and a compaction joined them."""
    write_rows(database_url, mixed_history())
    found = history_columns(database_url, TABLE)
    few = Scale(max_partitions=2)
    first = MIDNIGHT + timedelta(seconds=9)
    archive_history(spark, database_url, str(target_path), before=first, scale=few)
    archive_history(spark, database_url, str(target_path), scale=few)
    compact_archive(spark, str(target_path), database=database_url)
    assert not any(history_columns(database_url, TABLE).values())
    return found


@pytest.fixture
def archive(before: Columns, target_path: Path) -> Iterator[ArchiveSQL]:
    """The archive of `before`."""
    with closing(ArchiveSQL(target_path / "bus_events")) as opened:
        yield opened


def test_duckdb_reads_what_the_driver_read_before_the_deletion(
    before: Columns, archive: ArchiveSQL, target_path: Path
) -> None:
    archived = archive.columns()
    assert archived.keys() == before.keys()
    for name, values in before.items():
        assert archived[name] == values, name

    files = files_of(target_path / "bus_events")
    named = [
        (file["event_date"], file["first_id"], file["last_id"], file["fingerprint"]["rows"])
        for file in files
    ]
    found = archive.rows(
        "SELECT finished_date::DATE::TEXT AS day, min(record_id), max(record_id), count(*) "
        "FROM history GROUP BY day ORDER BY day"
    )
    assert sorted(named) == [tuple(row.values()) for row in found]


def test_every_figure_of_a_report_is_what_duckdb_counts_in_the_files(
    spark: SparkSession, archive: ArchiveSQL, target_path: Path
) -> None:
    expected = archive.figures(UNTIL)
    assert all(expected.values())
    given: dict[str, Any] = {"archive": str(target_path), "period": Period(until=UNTIL)}
    for found in (audit(spark, **given), rolled_audit(**given)):
        tables = {name: found.rows(name) for name in found.tables}
        assert list(differences(tables, expected, found.percentile_error)) == []
