"""An archive: history as Parquet files. Only files that a manifest names belong to it.

    DIR/bus_events/manifests/00000001.json
    DIR/bus_events/data/<run>/event_date=2026-01-31/part-….zstd.parquet

A file that no manifest names belongs to a run that was killed, or is still at work. Nobody reads
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from posixpath import dirname
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from history_pipeline.archives.archive_log import ArchiveLog, archived_tables
from history_pipeline.archives.manifest import DataFile, live_files
from history_pipeline.archives.place import directory
from history_pipeline.archives.storage import Storage, storage_of
from history_pipeline.errors import ArchiveDamagedError, ArchiveNotFoundError
from history_pipeline.period import EVER, Period, period_of
from history_pipeline.rows.columns import EVENT_DATE
from history_pipeline.rows.entries import within
from history_pipeline.rows.fingerprint import Fingerprint
from history_pipeline.rows.hashes import aggregates, row_hash
from history_pipeline.rows.kind import check_table, kind_of
from history_pipeline.rows.schema import spark_schema
from queue_core.runtime.arguments import of_kind

_MARKS_SUCCESS = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
"""Whether the file _SUCCESS is written; a manifest is what says so."""


class Extent(NamedTuple):
    """The ids in some files, ascending, and their latest `finished_date`.

    The date is in UTC, and None if there is no row.
    """

    ids: pa.ChunkedArray
    newest: datetime | None


class Archive(ArchiveLog[Storage]):
    """The archive of one history below the directory `target`.

    Its name is that of the main table, or `work_task_history`.
    """

    def __init__(self, spark: SparkSession, target: str, table: str) -> None:
        super().__init__(storage_of(spark, f"{directory(target)}/{table}"), table)
        self.spark = spark
        self.kind = kind_of(table)
        self.schema = spark_schema(self.kind.columns)

    def read(self, files: Iterable[DataFile], period: Period = EVER) -> DataFrame:
        """The rows of some files that ended in a period, with all columns of the history.

        Files of other days are not looked at. Raises ArchiveDamagedError if a file is missing.
        """
        files = [file for file in files if period.meets(file.event_date)]
        return within(self._read(files), period)

    def _read(self, files: Sequence[DataFile]) -> DataFrame:
        paths = [f"{self.where}/{file.path}" for file in files]
        if not paths:
            return self.spark.createDataFrame([], self.schema)
        try:
            return self.spark.read.schema(self.schema).parquet(*paths)
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            missing = (error.getMessageParameters() or {}).get("path", "")
            raise ArchiveDamagedError(
                f"{missing} is missing, though a manifest names it. Nothing was read or written. "
                "If a compaction or an erasure has replaced it meanwhile, start again; else "
                "bring it back from a copy.",
                path=missing,
            ) from error

    def extent(self, files: Iterable[DataFile]) -> Extent:
        """Return the ids in some files, and when the newest of their entries ended."""
        found = self.read(files).select("record_id", "finished_date").toArrow()
        return Extent(found["record_id"].sort(), pc.max(found["finished_date"]).as_py())

    def write(self, rows: DataFrame, run: str) -> tuple[Fingerprint, list[DataFile]]:
        """Write rows as the files of a run, and read them back.

        Returns the written fingerprint and the found files.

        `rows` are `dated` and parted. In each file they stand by queue and id.
        """
        written = Observation()
        # Below the sort, or Spark sorts once more, by the date alone.
        observed = rows.observe(written, *aggregates(row_hash(self.kind.names)))
        observed.sortWithinPartitions(EVENT_DATE, self.kind.queue, "record_id").write.partitionBy(
            EVENT_DATE
        ).option("compression", "zstd").option(_MARKS_SUCCESS, "false").parquet(
            f"{self.where}/data/{run}"
        )
        return Fingerprint.of(written.get), self.found(self.storage.sizes(f"data/{run}"))

    def found(
        self, sizes: Mapping[str, int], hashed_columns: Sequence[str] | None = None
    ) -> list[DataFile]:
        """Files as they are read back, given by path and size; those without rows are left out.

        Their fingerprints cover `hashed_columns`. Default: all columns that the history has now.
        """
        if not sizes:
            return []
        paths = [f"{self.where}/{path}" for path in sizes]
        # A name is that of its task: there is one of it in each date's folder.
        file_place = f.substring_index(f.col("_metadata.file_path"), "/", -2)
        facts = [
            f.min("record_id").alias("first_id"),
            f.max("record_id").alias("last_id"),
            *aggregates(f.col("hashed")),
        ]
        hashed = self.spark.read.schema(self.schema).parquet(*paths)
        hashed = hashed.select(
            file_place.alias("place"),
            "record_id",
            row_hash(hashed_columns or self.kind.names).alias("hashed"),
        )
        digests = self._digests(paths)
        rows = {row["place"]: row for row in hashed.groupBy("place").agg(*facts).collect()}
        return [
            DataFile(
                path=path,
                event_date=dirname(path).rpartition("=")[2],
                size_bytes=size_bytes,
                first_id=rows[place]["first_id"],
                last_id=rows[place]["last_id"],
                fingerprint=Fingerprint.of(rows[place]),
                sha256=digests[place],
            )
            for path, size_bytes in sizes.items()
            if (place := "/".join(path.split("/")[-2:])) in rows
        ]

    def _digests(self, paths: Sequence[str]) -> dict[str, str]:
        """The SHA-256 of files, by the last two parts of their paths.

        Spark computes it where the data is.
        """
        contents = self.spark.read.format("binaryFile").load(list(paths))
        place = f.substring_index("path", "/", -2)
        found = contents.select(place.alias("place"), f.sha2("content", 256).alias("sha256"))
        return {row["place"]: row["sha256"] for row in found.collect()}


def dated(rows: DataFrame) -> DataFrame:
    """Return rows of history with the day on which they ended."""
    return rows.withColumn(EVENT_DATE, f.to_date("finished_date"))


def read_archive(
    spark: SparkSession,
    target: str,
    table: str | None = None,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """Return the archived history of a table as a DataFrame with all columns of the history.

    It has no rows if nothing was archived so far. While an archive runs, an entry may be in the
    archive and still in history: with the same id and the same `finished_date`.

    Args:
        spark: A session, as `open_session` returns it.
        target: The directory of the archive.
        table: A main table or its history, or `work_task_history`. It may be left out if the
            directory holds one table only.
        since: Leave out rows that ended earlier: an aware date. Spark sees no file of a day before.
        until: Leave out rows that ended then or later, likewise.

    Returns:
        Its rows, which are read when Spark computes something of them.

    Raises:
        ArchiveNotFoundError: Nothing was archived there, or several tables were and `table` was
            left out.
        ArchiveDamagedError: A file or manifest is missing or damaged.
        ArchiveTargetError: Spark can't reach the directory.
        ConfigurationError: `table` is none that is archived, or `target` no directory.
        NaiveDateTimeError: A date has no time zone.
    """
    period = period_of(since, until)
    where, name = directory(target), None if table is None else _archive_name(table)
    archive = Archive(spark, where, name or _only_table(spark, where))
    return archive.read(live_files(archive.open()), period)


def _archive_name(table: str) -> str:
    of_kind(table, str, key="table")
    name = kind_of(table).archive_name(table)
    check_table(name)
    return name


def _only_table(spark: SparkSession, target: str) -> str:
    tables = archived_tables(storage_of(spark, target))
    if len(tables) > 1:
        raise ArchiveNotFoundError(
            f"{target} holds archives of {', '.join(tables)}: say which. Nothing was read.",
            path=target,
        )
    return tables[0]
