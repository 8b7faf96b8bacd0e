"""Archive, then truncate: history is copied, read back, published, and only then deleted.

A run takes a closed range: all rows up to some id that ended before a date. The date lies so far
back that no further row can appear. A run that was killed is started again. Files that it had not
published are no part of the archive. A manifest that it had entered in the log and not written is
written first, and rows that it had published and not deleted are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
from pyspark.sql import SparkSession
from sqlalchemy import URL
from sqlalchemy import Engine as SqlalchemyEngine

from history_pipeline.archives.agreement import Agreement
from history_pipeline.archives.archive import Archive, dated
from history_pipeline.archives.manifest import Kind, Manifest, new_run
from history_pipeline.archives.place import check_place
from history_pipeline.errors import ArchiveConflictError, ArchiveDamagedError
from history_pipeline.progress import Progress, silent, watched
from history_pipeline.rows.columns import EVENT_DATE
from history_pipeline.rows.fingerprint import Fingerprint, joined
from history_pipeline.rows.kind import TASKS, kind_of
from history_pipeline.rows.omission import omitted
from history_pipeline.rows.parts import Part, parts_of
from history_pipeline.scale import DEFAULT_SCALE, Scale, scale_of
from history_pipeline.session import own_session
from history_pipeline.upkeep.deletion import History, delete_run, finish_run, locked_history
from history_pipeline.upkeep.leftovers import remove_leftovers
from history_pipeline.upkeep.publication import publish
from history_pipeline.upkeep.recovery import recovered, take_over
from queue_core.model.config import BusConfig
from queue_core.model.node_config import NodeConfig
from queue_core.opening import open_checked, open_tables
from queue_core.reading.truncation import RECENT
from queue_core.runtime.arguments import function
from queue_core.runtime.clock import in_utc
from sql.database import Database

STATEMENT_SECONDS = 600.0
"""Longest statement of the archive's own connections."""

_APPLICATION = "stickybus-archive"
_FILE_BYTES = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
"""Of what a task that writes takes."""
_STAGES = 2
"""Stages of the Spark job that copies: one reads, one writes."""


@dataclass(frozen=True)
class Archived:
    """The result of one call.

    `finished`: rows deleted now that an earlier call had archived before it was killed.
    """

    table: str
    target: str
    before: datetime
    runs: list[str] = field(default_factory=list)
    entries: int = 0
    finished: int = 0
    files: int = 0
    size_bytes: int = 0


def archive_history(
    spark: SparkSession,
    database: str | URL | SqlalchemyEngine,
    target: str,
    *,
    table: str = "bus_events",
    before: datetime | None = None,
    without: Iterable[str] = (),
    scale: Scale = DEFAULT_SCALE,
    run_rows: int | None = None,
    progress: Progress = silent,
) -> Archived:
    """Move entries, or tasks, that ended before a date from history to an archive.

    Each run of at most `scale.run_rows` rows is copied, read back and published before any of
    its rows is deleted. Whatever happens, no row is deleted that is not archived.

    Args:
        spark: A session, as `open_session` returns it.
        database: URL or SQLAlchemy Engine of the database.
        target: Any directory that Spark can write to.
        table: The main table whose history is archived, or `work_task_history`. Default:
            `bus_events`.
        before: An aware date. The default is a minute ago. Entries that end after the call began
            stay, even if the date is yet to come.
        without: Parts of rows that the archive does not keep: `payload` (of tasks the value),
            `errors` (the messages and tracebacks; the types stay) or both. They are gone when the
            rows are deleted. Default: none.
        scale: How large a run, its tasks and its files are. Default: `Scale()`.
        run_rows: The former name of `scale.run_rows`.
        progress: Called with the name of the step, the entries done so far, and all entries; from
            any thread.

    Returns:
        The runs and rows of this call.

    Raises:
        ArchiveError: The archive or the history is not as expected. The message says whether
            anything was published or deleted.
        ConfigurationError: `without` names anything else, or another argument is not allowed.
        NaiveDateTimeError: `before` has no time zone.
        StickybusError: The database can't be opened, or lacks the table.

    Errors of SQLAlchemy and Spark are raised as they are.
    """
    check_place(target, table)
    function(progress, key="progress", arguments=3)
    scale = scale_of(scale, run_rows=run_rows)
    limit = None if before is None else in_utc(before, key="before")
    parts = parts_of(without)
    opened = _opened(database, table)
    try:
        own = own_session(spark, {_FILE_BYTES: str(scale.file_bytes)})
        archive = Archive(own, target, table)
        with locked_history(opened, table) as history:
            now = history.now()
            # On a busy queue entries end all the time.
            until = now - RECENT if limit is None else min(limit, now)
            return Archiver(history, archive, until, parts, scale, progress).work()
    finally:
        opened.close()


def _opened(database: str | URL | SqlalchemyEngine, table: str) -> Database:
    if kind_of(table) is TASKS:
        return open_checked(
            database,
            (),
            statement_timeout_seconds=STATEMENT_SECONDS,
            application_name=_APPLICATION,
        )
    config = BusConfig(
        table=table,
        node=NodeConfig(statement_timeout_seconds=STATEMENT_SECONDS),
        application_name=_APPLICATION,
    )
    return open_tables(database, config)


@dataclass
class Archiver:
    """Archives one history, run by run. Each step is a method, in the order of their calls."""

    history: History
    archive: Archive
    before: datetime
    without: Sequence[Part]
    scale: Scale
    progress: Progress
    copied: int = 0
    deleted: int = 0
    total: int = 0

    def work(self) -> Archived:
        """Finish the run that an earlier call has left, and archive all that is to be archived."""
        for folder in ("manifests", "data"):
            self.archive.storage.make(folder)
        found = recovered(self.archive, self.history.database)
        published = found.manifests
        finished = self.finish(found)
        take_over(self.archive, self.history.database, found)
        remove_leftovers(self.archive, published, now=self.history.now(), logged_runs=found.rows)
        self.total = self.history.count(self.before)
        runs = list[Manifest]()
        while (chosen := self.choose(published + runs)) is not None:
            runs.append(self.publish(self.copy(chosen)))
            self.delete(runs[-1])
        files = [file for manifest in runs for file in manifest.files]
        return Archived(
            table=self.history.table,
            target=self.archive.where,
            before=self.before,
            runs=[manifest.run for manifest in runs],
            entries=sum(manifest.fingerprint.rows for manifest in runs),
            finished=finished,
            files=len(files),
            size_bytes=sum(file.size_bytes for file in files),
        )

    def finish(self, found: Agreement) -> int:
        """Delete the rows that were published and not deleted, and return their number.

        Raises ArchiveConflictError if this call wants to keep parts that the run has left out.
        """
        for manifest in found.unfinished:
            kept = [part for part in manifest.without if part not in self.without]
            if kept:
                left_out = " and ".join(kept)
                raise ArchiveConflictError(
                    f"{self.archive.where}: run {manifest.run} was archived without {left_out}, "
                    "and then killed: its rows are in history still. To delete them, archive once "
                    f"more without {left_out}. To keep the left-out parts, copy these rows "
                    "elsewhere first. Nothing was deleted.",
                    path=self.archive.where,
                )
        return sum(
            finish_run(self.history, self.archive, manifest, logged=found.is_logged(manifest))
            for manifest in found.unfinished
        )

    def choose(self, published: list[Manifest]) -> Manifest | None:
        """The closed range of the next run, as a manifest without files.

        None if nothing is left to archive.
        """
        found = self.history.closed_range(self.before, self.scale.run_rows)
        if found is None:
            return None
        first_id, last_id = found
        run = new_run(now := self.history.now())
        return Manifest(
            number=len(published) + 1,
            kind=Kind.ARCHIVE,
            run=run,
            archive=published[0].archive if published else run,
            table=self.history.table,
            created=now,
            fingerprint=Fingerprint(),
            files=[],
            database=self.history.name,
            first_id=first_id,
            last_id=last_id,
            before=self.before,
            columns=[*self.history.kind.columns],
        )

    def copy(self, chosen: Manifest) -> Manifest:
        """Write the files of a run, and read them back.

        Raises ArchiveDamagedError if they differ.
        """
        # Files of a good size, however the days lie in the ranges of ids that are read.
        rows = self.history.rows(self.archive, chosen, self.scale)
        rows = dated(omitted(rows, self.history.kind, self.without)).hint("rebalance", EVENT_DATE)
        with watched(self.archive.spark, _STAGES, self._tell_copied):
            written, files = self.archive.write(rows, chosen.run)
        check_written(
            self.archive, chosen.run, written, joined([file.fingerprint for file in files])
        )
        files = [msgspec.structs.replace(file, without=list(self.without)) for file in files]
        self.copied += written.rows
        self.progress("copied", self.copied, max(self.copied, self.total))
        return msgspec.structs.replace(chosen, fingerprint=written, files=files)

    def publish(self, manifest: Manifest) -> Manifest:
        """Make the run part of the archive."""
        return publish(
            self.archive, self.history.database, manifest, connection=self.history.connection
        )

    def delete(self, manifest: Manifest) -> None:
        """Delete the run's rows from history."""
        delete_run(self.history, self.archive, manifest, self._tell_deleted)
        self.deleted += manifest.fingerprint.rows

    def _tell_copied(self, share: float) -> None:
        coming = min(self.scale.run_rows, self.total - self.copied)
        self.progress("copied", self.copied + int(share * max(0, coming)), self.total)

    def _tell_deleted(self, rows: int) -> None:
        self.progress("deleted", self.deleted + rows, max(self.deleted + rows, self.total))


def check_written(archive: Archive, run: str, written: Fingerprint, found: Fingerprint) -> None:
    """Raises ArchiveDamagedError unless the rows read back are the written ones."""
    if found != written:
        raise ArchiveDamagedError(
            f"{archive.where}/data/{run}: {written.rows} rows were written, but the {found.rows} "
            "rows read back differ. Nothing was published or deleted. Look at the file system, "
            "and start again.",
            path=f"{archive.where}/data/{run}",
        )
