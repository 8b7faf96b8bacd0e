"""A process that works on an archive and is killed by SIGKILL at a point that it is told.

    killed.py POINT JOB URL DIR

The points are set from here: the product knows none. Java dies with the process where its work is
cut in the middle; elsewhere the process is a client of the Java that the tests have started
already, which spares half a minute.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from history_pipeline import (
    archive_history,
    compact_archive,
    expire_archive,
    open_session,
    replay_archive,
)
from history_pipeline.archives.archive import Archive
from history_pipeline.archives.storage import LocalStorage
from history_pipeline.upkeep import deletion, reposts
from history_pipeline.upkeep.archiving import Archiver
from sql.statements.archives import Archives
from sql.statements.ranges import Ranges
from tests.killed import die, die_after

EXPIRED_BEFORE = datetime(2026, 3, 2, tzinfo=UTC)
"""The first of the sample's two days was over by then."""


def die_before(place: object, name: str) -> None:
    """Die when `place.name` is called."""
    setattr(place, name, lambda *_arguments, **_options: die())


def die_while_writing(target: str) -> None:
    """Die when Spark has begun to write data."""

    def watch() -> None:
        while not list(Path(target).glob("*/data/*/_temporary/0/*")):
            time.sleep(0.001)
        die()

    threading.Thread(target=watch, daemon=True).start()


POINTS: dict[str, Callable[[str], None]] = {
    "while files are written": die_while_writing,
    "when files are written": lambda _target: die_before(Archive, "found"),
    "before the row is committed": lambda _target: die_after(Archives, "enter_published"),
    "before the manifest is written": lambda _target: die_before(LocalStorage, "put"),
    "while the manifest is written": lambda _target: die_before(Path, "replace"),
    "when the manifest is written": lambda _target: die_after(LocalStorage, "put"),
    "while rows are deleted": lambda _target: die_after(Ranges, "delete_range", calls=2),
    "before the deletion is committed": lambda _target: die_after(Archives, "enter_deleted"),
    "when rows are deleted": lambda _target: die_after(Archiver, "delete"),
    "before a batch is committed": lambda _target: die_after(Archives, "enter_replayed", calls=2),
}


def session_of_gateway() -> SparkSession:
    """The session that is open in the Java process of `PYSPARK_GATEWAY_PORT`."""
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    jvm: Any = gateway.jvm
    session = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    java_context = jvm.org.apache.spark.api.java.JavaSparkContext(session.sparkContext())
    conf = SparkConf(_jconf=java_context.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=java_context, conf=conf), session)


def main(point: str, job: str, url: str, target: str) -> None:
    """Do a job as far as its point."""
    deletion.DELETE_ROWS = 10
    reposts.BATCH_ROWS = 10
    shared = "PYSPARK_GATEWAY_PORT" in os.environ
    spark = session_of_gateway() if shared else open_session("killed", master="local[2]")
    POINTS[point](target)
    match job:
        case "archive":
            archive_history(spark, url, target)
        case "archive tasks":
            archive_history(spark, url, target, table="work_task_history")
        case "compact":
            compact_archive(spark, target, database=url)
        case "expire":
            expire_archive(spark, target, database=url, before=EXPIRED_BEFORE)
        case _:
            replay_archive(spark, url, target, where="true", post=True)
    raise AssertionError(f"the process is still alive after {point!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
