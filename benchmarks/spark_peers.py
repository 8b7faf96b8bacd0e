"""History beside the same work by hand, with the bare driver, PyArrow and DuckDB.

All read, archive and count the same rows, in turns of one run. By hand nothing is verified, and no
row is deleted: the bare driver fills Arrow batches, and DuckDB writes these as Parquet files, a
folder for each day. All figures of a report are computed from the files of the archive: by SQL in
DuckDB, by all rows in Spark, and by roll-ups, once without any kept, once by those that were kept.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
from sqlalchemy import URL

from benchmarks.archive_sql import ArchiveSQL
from benchmarks.databases import Target
from benchmarks.measurement import Measurement
from benchmarks.pipeline import (
    MASTER,
    ROW_BYTES,
    bare_batches,
    driver_read,
    fill,
    seconds_of,
    shared_session,
    source_read,
)
from benchmarks.workload import Sizes, median_ratio
from history_pipeline import Period, rolled_audit
from history_pipeline.rows.schema import HISTORY_SCHEMA, arrow_schema

UNTIL = datetime(2026, 1, 3, tzinfo=UTC)
"""All rows have ended by then."""
DRIVER = "read, driver"
READ, BY_DUCKDB, ARCHIVED = "read, stickybus", "archive, DuckDB", "archive, stickybus"
IN_SQL, BY_ROWS = "statistics, DuckDB", "statistics, stickybus on Spark"
ROLLED, KEPT = "statistics, stickybus, first roll-up", "statistics, stickybus, kept roll-ups"
RATIOS = ((ARCHIVED, BY_DUCKDB), (BY_ROWS, IN_SQL), (ROLLED, IN_SQL), (KEPT, IN_SQL))


def spark_peers(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Measure each in rounds, and its ratio to the driver's read, or to DuckDB, in each round."""
    rows = sizes.entries(200_000)
    rates = defaultdict[str, list[float]](list)
    for _ in range(sizes.rounds):
        with target.fresh() as url, tempfile.TemporaryDirectory() as folder:
            fill(url, rows)
            for name, seconds in _round(url, Path(folder), rows):
                rates[name].append(rows / seconds)
    settings = {
        "rows": rows,
        "rounds": sizes.rounds,
        "payload_bytes": ROW_BYTES,
        "master": MASTER,
        "duckdb": duckdb.__version__,
    }
    for name, found in rates.items():
        yield Measurement(
            "spark-peers",
            target.name,
            name,
            statistics.median(found),
            "rows/s",
            {**settings, "rates": found},
            median_ratio(found, rates[DRIVER]),
        )
    for ours, theirs in RATIOS:
        ratio = median_ratio(rates[ours], rates[theirs])
        yield Measurement("spark-peers", target.name, f"{ours}, to DuckDB", ratio, "x", settings)


def _round(url: URL, folder: Path, rows: int) -> Iterator[tuple[str, float]]:
    """The seconds of each work, in the order in which one needs the other's files."""
    text, archive = url.render_as_string(hide_password=False), folder / "archive"
    yield DRIVER, seconds_of(driver_read(url), rows)
    yield READ, seconds_of(source_read(url, rows), rows)
    yield BY_DUCKDB, seconds_of(lambda: _copied(url, folder / "by_hand"), rows)
    [(seconds, _)] = shared_session().run("archive", text, str(archive), str(rows))
    yield ARCHIVED, seconds
    yield IN_SQL, seconds_of(lambda: _counted_in_sql(archive / "bus_events"), rows)
    yield ROLLED, seconds_of(lambda: _counted_rolled(archive), rows)
    yield KEPT, seconds_of(lambda: _counted_rolled(archive), rows)
    [(seconds, _)] = shared_session().run("report", str(archive), UNTIL.isoformat(), str(rows))
    yield BY_ROWS, seconds


def _copied(url: URL, folder: Path) -> int:
    """Write the rows that the driver reads as Parquet files. Returns their rows."""
    batches = pa.RecordBatchReader.from_batches(arrow_schema(HISTORY_SCHEMA), bare_batches(url))
    with closing(duckdb.connect(config={"threads": 2})) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("history", batches)
        copied = connection.execute(
            "COPY (SELECT *, finished_date::DATE AS event_date FROM history "
            "ORDER BY event_date, queue_name, record_id) "
            "TO $folder (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (event_date))",
            {"folder": str(folder)},
        ).fetchall()
    [(count,)] = copied
    return int(count)


def _counted_in_sql(folder: Path) -> int:
    with closing(ArchiveSQL(folder)) as archive:
        total = archive.figures(UNTIL)["statistics"][0]
    return int(total["processed"] + total["failed"])


def _counted_rolled(archive: Path) -> int:
    found = rolled_audit(archive=str(archive), period=Period(until=UNTIL))
    total = found.rows("statistics")[0]
    return int(total["processed"] + total["failed"])
