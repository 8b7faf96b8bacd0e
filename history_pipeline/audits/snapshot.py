"""The snapshot that an audit reads: live entries, history and archive of a table.

Each is read once and kept on disk.

The main table is read before its history, and history before the archive: an entry that moves
meanwhile is seen twice rather than never.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- as all of Spark's documents name it

from history_pipeline.archives.agreement import check_agreement
from history_pipeline.archives.archive import Archive, read_archive
from history_pipeline.archives.archive_log import archived_tables
from history_pipeline.archives.manifest import live_files
from history_pipeline.archives.storage import storage_of
from history_pipeline.audits.figures import known_tables
from history_pipeline.rows.columns import READ_COLUMNS
from history_pipeline.rows.entries import differing, entries, once
from history_pipeline.rows.kind import ENTRIES
from history_pipeline.rows.schema import HISTORY_SCHEMA
from history_pipeline.source.data_source import read_history
from history_pipeline.source.id_bounds import last_id
from sql import schema
from sql.database import Database
from sql.tables import entry_tables

_LIVE_COLUMNS = ("record_id", "origin_id")


@dataclass(frozen=True)
class TableSnapshot:
    """The rows of one table. A count is None if its table was not read."""

    name: str
    ended: DataFrame
    """`entries.entries` of history and archive. A row that is in both stands in it once."""
    live: DataFrame
    """Live entries: table_name, record_id, chain_id."""
    differing: DataFrame
    """`entries.differing`."""
    last_id: int | None
    """The largest id when the reading began.

    Later entries may be seen or not. None if the table was not read.
    """
    live_count: int | None
    history_count: int | None
    archived_count: int | None


class Snapshot:
    """Reads tables, and drops their rows at the end of `closing`."""

    def __init__(
        self,
        spark: SparkSession,
        database: Database | None,
        archive: str | None,
        closing: ExitStack,
    ) -> None:
        self._spark = spark
        self._database = database
        self._archive = archive
        self._closing = closing
        self._live_tables = () if database is None else database.fetch(schema.main_tables)
        self._archived_tables = (
            () if archive is None else tuple(archived_tables(storage_of(spark, archive), ENTRIES))
        )

    def tables(self, wanted: Sequence[str] | None) -> list[str]:
        """The names of the main tables to be read.

        They are all of the database and the archive, or those `wanted`.

        Raises SchemaMissingError if one, or all, are in neither.
        """
        return known_tables(self._live_tables, self._archived_tables, wanted)

    def read(self, table: str) -> TableSnapshot:
        """Read one of `tables`."""
        nothing = self._spark.createDataFrame([], HISTORY_SCHEMA)
        ended, live, differ = (
            entries(nothing, table),
            _live(nothing, table),
            _live(nothing, table).drop("chain_id"),
        )
        newest = live_count = history_count = archived_count = None
        if table in self._live_tables:
            newest, live, live_count, ended, history_count = self._read_database(table)
        if self._archive is not None and table in self._archived_tables:
            archived = entries(
                read_archive(self._spark, self._archive, table).select(*READ_COLUMNS), table
            )
            archived_count = archived.count()
            differ = differing(ended, archived)
            ended, _ = self._kept(once(ended, archived))
        return TableSnapshot(
            name=table,
            ended=ended,
            live=live,
            differing=differ,
            last_id=newest,
            live_count=live_count,
            history_count=history_count,
            archived_count=archived_count,
        )

    def _read_database(self, table: str) -> tuple[int, DataFrame, int, DataFrame, int]:
        assert self._database is not None  # noqa: S101 -- it has told of the table
        url = self._database.url
        pair = entry_tables(table)
        newest = self._database.fetch(
            lambda connection: last_id(connection, (pair.main, pair.history))
        )
        if table in self._archived_tables and self._archive is not None:
            archive = Archive(self._spark, self._archive, table)
            manifests = check_agreement(archive, self._database)
            newest = max(newest, *(file.last_id for file in live_files(manifests)), 0)
        live, live_count = self._kept(
            _live(read_history(self._spark, url, table, columns=_LIVE_COLUMNS), table)
        )
        history = read_history(self._spark, url, f"{table}_history", columns=READ_COLUMNS)
        ended, history_count = self._kept(entries(history, table))
        return newest, live, live_count, ended, history_count

    def _kept(self, rows: DataFrame) -> tuple[DataFrame, int]:
        """The rows, read now and kept on disk, and how many there are."""
        kept = rows.persist(StorageLevel.DISK_ONLY)
        self._closing.callback(kept.unpersist)
        return kept, kept.count()


def _live(rows: DataFrame, table: str) -> DataFrame:
    chain = F.coalesce("origin_id", "record_id").alias("chain_id")
    return rows.select(F.lit(table).alias("table_name"), "record_id", chain)
