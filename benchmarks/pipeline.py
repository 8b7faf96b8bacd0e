"""History on Spark: how fast it is read, archived and analysed, in a local session of two threads.

Reading is compared with the bare driver, which fills Arrow batches of the same columns on one
connection. The target is 0.8 of its rate. Archiving and statistics have no bare counterpart. Their
targets at full size: 1M rows archived in 60 s, and 10M rows analysed within 4 GB.
"""

from __future__ import annotations

import atexit
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlalchemy import URL, Connection, func, insert, literal, select
from sqlalchemy.types import BigInteger

from benchmarks.databases import Target
from benchmarks.measurement import Measurement
from benchmarks.workload import Sizes, VerificationError
from history_pipeline.rows.schema import HISTORY_SCHEMA, arrow_schema
from history_pipeline.source.batches import selected
from history_pipeline.source.options import ReadOptions
from history_pipeline.source.reader import HistoryReader
from sql.database import Database
from sql.tables import entry_tables

MASTER = "local[2]"
ROW_BYTES = 500
"""Of payload in one row."""
FETCHED = 5_000
"""Rows that the bare driver takes at once."""
_BASE = 1_000
_HISTORY = entry_tables("bus_events").history
_ENDED = datetime(2026, 1, 1, tzinfo=UTC)


def reading(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Read one partition by the source and by the bare driver, in alternating rounds.

    Then read the whole through Spark.
    """
    rows = sizes.entries(200_000)
    with target.fresh() as url:
        fill(url, rows)
        by_source, by_driver = source_read(url, rows), driver_read(url)
        timed = [
            (seconds_of(by_source, rows), seconds_of(by_driver, rows)) for _ in range(sizes.rounds)
        ]
        settings: dict[str, Any] = {
            "rows": rows,
            "rounds": sizes.rounds,
            "payload_bytes": ROW_BYTES,
        }
        source = statistics.median(one for one, _ in timed)
        ratio = statistics.median(bare / one for one, bare in timed)
        yield Measurement(
            "spark-read", target.name, "partition", rows / source, "rows/s", dict(settings), ratio
        )
        text = url.render_as_string(hide_password=False)
        ((seconds, _),) = shared_session().run("read", text, str(rows), str(sizes.rounds))
        settings["master"] = MASTER
        yield Measurement("spark-read", target.name, "whole", rows / seconds, "rows/s", settings)


def source_read(url: URL, rows: int) -> Callable[[], int]:
    """A read of all rows, in one partition, by the source that Spark uses. It returns their number.

    It is planned already.
    """
    options = ReadOptions(url.render_as_string(hide_password=False), ids_per_partition=rows)
    reader = HistoryReader(HISTORY_SCHEMA, options)
    (partition,) = reader.partitions()
    return lambda: sum(batch.num_rows for batch in reader.read(partition))


def driver_read(url: URL) -> Callable[[], int]:
    """A read of all rows by the bare driver, likewise."""
    return lambda: sum(batch.num_rows for batch in bare_batches(url))


def archiving(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Copy, verify and delete a whole history."""
    rows = sizes.entries(1_000_000)
    with target.fresh() as url, tempfile.TemporaryDirectory() as folder:
        fill(url, rows)
        ((seconds, _),) = shared_session().run(
            "archive", url.render_as_string(hide_password=False), folder, str(rows)
        )
        left = _count(url)
        if left:
            raise VerificationError(f"{left} rows are left of {rows}")
        settings = {"rows": rows, "payload_bytes": ROW_BYTES, "master": MASTER, "seconds": seconds}
        yield Measurement("spark-archive", target.name, "rate", rows / seconds, "rows/s", settings)


def analysing(target: Target, sizes: Sizes) -> Iterator[Measurement]:
    """Measure the time and memory of statistics over Parquet files of two sizes.

    No database takes part.
    """
    if target.name != "sqlite":
        return
    full = [sizes.standing(rows, rows // 50_000) for rows in (1_000_000, 10_000_000)]
    found = list[tuple[int, float]]()
    # Its own, so that the memory of others is not counted.
    with tempfile.TemporaryDirectory() as folder, closing(SparkProcess()) as process:
        lines = process.run("statistics", folder, *map(str, full))
    for rows, (seconds, used) in zip(full, lines, strict=True):
        settings, label = {"rows": rows, "master": MASTER}, f"{rows:,} rows"
        yield Measurement("spark-statistics", target.name, label, seconds, "s", settings)
        yield Measurement(
            "spark-statistics", target.name, f"memory, {label}", used / 1024**2, "MiB", settings
        )
        found.append((rows, seconds))
    (few, short), (many, long) = found
    growth = (long / many) / (short / few)
    yield Measurement(
        "spark-statistics", target.name, "time for a row, many to few", growth, "x", {"rows": many}
    )


def fill(url: URL, rows: int) -> None:
    """Write `rows` rows of history with ids from 1, in steps that double them."""
    database = Database(url, statement_timeout_seconds=3600)
    try:
        database.write(
            lambda connection: connection.execute(insert(_HISTORY), _first(min(rows, _BASE)))
        )
        there = min(rows, _BASE)
        while there < rows:
            more = min(there, rows - there)
            _double(database, there, more)
            there += more
    finally:
        database.close()


def _first(rows: int) -> list[dict[str, Any]]:
    return [
        {
            "record_id": number,
            "queue_name": f"queue-{number % 5}",
            "class_name": f"Event{number % 7}",
            "event_json": '{"text":"' + f"{number:06d} " * ((ROW_BYTES - 12) // 7) + '"}',
            "search_key1": number,
            "search_key2": number % 10,
            "created_date": _ENDED + timedelta(seconds=number),
            "effective_date": _ENDED + timedelta(seconds=number),
            "creating_owner": f"node-{number % 3}",
            "processing_owner": f"node-{number % 3}",
            "processing_state": "FAILED" if number % 50 == 0 else "PROCESSED",
            "error_count": 4 if number % 50 == 0 else 0,
            "claim_count": 1,
            "started_date": _ENDED + timedelta(seconds=number, milliseconds=3),
            "finished_date": _ENDED + timedelta(seconds=number, milliseconds=3 + number % 400),
        }
        for number in range(1, rows + 1)
    ]


def _double(database: Database, there: int, more: int) -> None:
    values = {column.name: column for column in _HISTORY.c} | {
        "record_id": _HISTORY.c.record_id + literal(there, BigInteger)
    }
    copies = insert(_HISTORY).from_select(
        list(values), select(*values.values()).where(_HISTORY.c.record_id <= more)
    )
    database.write(lambda connection: connection.execute(copies))


def bare_batches(url: URL) -> Iterator[pa.RecordBatch]:
    """Read all rows by the driver's cursor on one connection, in Arrow batches.

    Dates have the driver's fastest form.
    """
    database = Database(url, statement_timeout_seconds=3600)
    schema = arrow_schema(HISTORY_SCHEMA)
    try:
        with database.read() as connection:
            columns = [selected(database.dialect.bulk, column) for column in _HISTORY.c]
            text = str(select(*columns).compile(connection, compile_kwargs={"literal_binds": True}))
            driver: Any = connection.connection.driver_connection
            cursor = driver.cursor()
            cursor.execute(text)
            while rows := cursor.fetchmany(FETCHED):
                yield _batch(rows, schema)
            cursor.close()
    finally:
        database.close()


def _batch(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for field, values in zip(schema, zip(*rows, strict=True), strict=True):
        text = pa.types.is_timestamp(field.type) and isinstance(
            next((v for v in values if v), None), str
        )
        arrays.append(pa.array(values, pa.string() if text else field.type))
        if text:
            arrays[-1] = arrays[-1].cast(pa.timestamp("us")).cast(field.type)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def seconds_of(work: Callable[[], int], rows: int) -> float:
    """The seconds of some work, which returns the number of its rows.

    Raises VerificationError if it has other than `rows`.
    """
    start = time.perf_counter()
    found = work()
    seconds = time.perf_counter() - start
    if found != rows:
        raise VerificationError(f"{found} rows instead of {rows}")
    return seconds


def _count(url: URL) -> int:
    database = Database(url)

    def work(connection: Connection) -> int:
        return int(connection.execute(select(func.count()).select_from(_HISTORY)).scalar_one())

    try:
        return database.fetch(work)
    finally:
        database.close()


class SparkProcess:
    """Runs the commands of `benchmarks.spark_process`, in a process of its own."""

    def __init__(self) -> None:
        # Not by a pipe, which nobody empties.
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.spark_process"],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def run(self, work: str, *arguments: str) -> list[tuple[float, float]]:
        """Seconds and the peak of bytes of each piece.

        Raises VerificationError if the process fails.
        """
        assert self._process.stdin is not None  # noqa: S101 -- opened above
        assert self._process.stdout is not None  # noqa: S101 -- opened above
        self._process.stdin.write(json.dumps([work, *arguments]) + "\n")
        self._process.stdin.flush()
        pieces = list[tuple[float, float]]()
        for line in self._process.stdout:
            if not line.strip():
                return pieces
            seconds, used = map(float, line.split())
            pieces.append((seconds, used))
        self._errors.seek(0)
        raise VerificationError(self._errors.read().strip()[-2000:])

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
        self._errors.close()


@cache
def shared_session() -> SparkProcess:
    """One for all databases: its start takes longer than a small piece of work."""
    started = SparkProcess()
    atexit.register(started.close)
    return started
