"""A process with one Spark session that does pieces of work.

It prints the seconds and the peak of its memory in bytes.

Each line that it reads is a JSON array of a name in `WORK` and its arguments; it answers a line a
piece, and an empty one.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.pipeline import MASTER
from benchmarks.workload import VerificationError
from history_pipeline import Period, archive_history, audit, open_session, read_history
from history_pipeline.audits.statistics import statistics as statistics_of
from history_pipeline.rows.entries import entries
from history_pipeline.rows.schema import HISTORY_SCHEMA

_PAGE = os.sysconf("SC_PAGE_SIZE")
_LOOK_SECONDS = 0.1


class Peak:
    """Return the peak memory of this process and all that it has started, in bytes."""

    def __init__(self) -> None:
        self.bytes = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(_LOOK_SECONDS):
            self.bytes = max(self.bytes, sum(_private(pid) for pid in _family(os.getpid())))


def _family(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found = [int(child) for child in children.read_text().split()]
        except OSError:
            continue
        for child in found:
            yield from _family(child)


def _private(pid: int) -> int:
    """Resident pages that it does not share, as forked workers do with their parent."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * _PAGE


def read(spark: SparkSession, url: str, rows: str, rounds: str) -> Iterator[float]:
    """Read a whole history, into nothing."""
    history = read_history(spark, url)
    if history.count() != int(rows):
        raise VerificationError("rows are missing")
    yield statistics.median(_timed(history) for _ in range(int(rounds)))


def archive(spark: SparkSession, url: str, folder: str, rows: str) -> Iterator[float]:
    """Archive a whole history: copied, verified, deleted."""
    start = time.perf_counter()
    archived = archive_history(spark, url, folder)
    seconds = time.perf_counter() - start
    if archived.entries != int(rows):
        raise VerificationError(f"{archived.entries} of {rows} rows were archived")
    yield seconds


def report(spark: SparkSession, folder: str, until: str, rows: str) -> Iterator[float]:
    """All figures of a report, exactly, from an archive."""
    start = time.perf_counter()
    found = audit(spark, archive=folder, period=Period(until=datetime.fromisoformat(until)))
    seconds = time.perf_counter() - start
    total = found.rows("statistics")[0]
    if total["processed"] + total["failed"] != int(rows):
        raise VerificationError(f"the total is {total}")
    yield seconds


def analyse(spark: SparkSession, folder: str, *sizes: str) -> Iterator[float]:
    """All statistics over Parquet files of each size in turn."""
    for rows in sizes:
        history_of(spark, int(rows)).write.mode("overwrite").parquet(f"{folder}/{rows}")
        history = spark.read.parquet(f"{folder}/{rows}")
        start = time.perf_counter()
        found = statistics_of(entries(history, "bus_events")).collect()
        seconds = time.perf_counter() - start
        totals = [row for row in found if row.grouping == "total"]
        if [row.processed + row.failed for row in totals] != [int(rows)]:
            raise VerificationError(f"the total is {totals}")
        yield seconds


def history_of(spark: SparkSession, rows: int) -> DataFrame:
    """Make a history by arithmetic: a day in the hour for every million rows, times that spread."""
    number = f.col("id")
    created = f.timestamp_micros(f.lit(1_767_225_600_000_000) + number * 86_400)
    started = f.timestamp_micros(f.lit(1_767_225_600_000_000) + number * 86_400 + number % 9_973)
    finished = f.timestamp_micros(
        f.lit(1_767_225_600_000_000) + number * 86_400 + number % 9_973 + (number * 7_919) % 500_009
    )
    failed = number % 50 == 0
    made = {
        "record_id": number,
        "finished_date": finished,
        "queue_name": f.concat(f.lit("queue-"), (number % 5).cast("string")),
        "class_name": f.concat(f.lit("Event"), (number % 7).cast("string")),
        "event_json": f.lit('{"number":1}'),
        "codec": f.lit("json"),
        "created_date": created,
        "effective_date": created,
        "creating_owner": f.concat(f.lit("node-"), (number % 3).cast("string")),
        "processing_owner": f.concat(f.lit("node-"), (number % 3).cast("string")),
        "lane": f.lit(""),
        "processing_state": f.when(failed, "FAILED").otherwise("PROCESSED"),
        "error_count": f.when(failed, 4).otherwise(0),
        "claim_count": f.lit(1),
        "redispatch_count": f.lit(0),
        "crash_count": f.lit(0),
        "started_date": started,
    }
    return spark.range(1, rows + 1).select(
        *(
            made.get(field.name, f.lit(None)).cast(field.dataType).alias(field.name)
            for field in HISTORY_SCHEMA.fields
        )
    )


def _timed(rows: DataFrame) -> float:
    start = time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start


WORK: dict[str, Callable[..., Iterator[float]]] = {
    "read": read,
    "archive": archive,
    "report": report,
    "statistics": analyse,
}


def main() -> None:
    """Work until there is nothing more to read."""
    session = open_session("benchmark", master=MASTER)
    # The first job of a session takes seconds, whatever it does.
    session.range(10).count()
    peak = Peak()
    try:
        for line in sys.stdin:
            work, *arguments = json.loads(line)
            peak.bytes = 0
            for seconds in WORK[work](session, *arguments):
                print(seconds, peak.bytes)
            print(flush=True)
    finally:
        session.stop()


if __name__ == "__main__":
    main()
