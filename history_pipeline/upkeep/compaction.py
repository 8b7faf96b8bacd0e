"""Compaction: the many small files of a day become few.

The new files are read back, and must have the fingerprint that the manifests have of those which
they replace. Then one manifest adds the new files and names the old ones as replaced. If the
compaction is killed before that, nothing has changed. The next archive or compaction removes the
old files a day later, so that their readers get to the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from sqlalchemy import URL
from sqlalchemy import Engine as SqlalchemyEngine

from history_pipeline.archives.archive import Archive, dated
from history_pipeline.archives.database import opened_for
from history_pipeline.archives.manifest import (
    DataFile,
    Kind,
    Manifest,
    live_files,
    new_run,
    parts_missing,
    replacing,
)
from history_pipeline.archives.place import check_place
from history_pipeline.errors import ArchiveConflictError, ArchiveDamagedError
from history_pipeline.progress import Progress, silent, watched
from history_pipeline.rows.columns import EVENT_DATE
from history_pipeline.rows.fingerprint import Fingerprint, joined
from history_pipeline.scale import DEFAULT_SCALE, Scale, scale_of
from history_pipeline.session import own_session
from history_pipeline.upkeep.archiving import check_written
from history_pipeline.upkeep.files_lock import files_lock
from history_pipeline.upkeep.leftovers import remove_leftovers
from history_pipeline.upkeep.publication import publish
from history_pipeline.upkeep.recovery import recovered
from queue_core.runtime.arguments import function

_STAGES = 2
"""Stages of the Spark job: one reads, one writes."""


@dataclass(frozen=True)
class Compacted:
    """The result of one compaction: the number of days, and of their files before and after.

    `run`: None if nothing was needed.
    """

    table: str
    target: str
    run: str | None = None
    days: int = 0
    entries: int = 0
    files_before: int = 0
    files_after: int = 0


def compact_archive(
    spark: SparkSession,
    target: str,
    *,
    database: str | URL | SqlalchemyEngine,
    table: str = "bus_events",
    scale: Scale = DEFAULT_SCALE,
    file_bytes: int | None = None,
    progress: Progress = silent,
) -> Compacted:
    """Rewrite the days of an archive that have more files than they need.

    Archives, replays and readers may run meanwhile. After an error the archive is as it was.

    Args:
        spark: A session, as `open_session` returns it.
        target: The directory of the archive.
        database: The database that was archived, which holds the log of the archive.
        table: The main table whose history was archived, or `work_task_history`. Default:
            `bus_events`.
        scale: How large a file should be; its other sizes are an archive's. Default: `Scale()`.
        file_bytes: The former name of `scale.file_bytes`.
        progress: Called with the name of the step, the entries done so far, and all entries; from
            any thread.

    Returns:
        The days and files that were rewritten.

    Raises:
        ConfigurationError: An argument is not allowed.
        ArchiveNotFoundError: Nothing was archived there.
        ArchiveDamagedError: A file or manifest is missing or damaged.
        ArchiveConflictError: Another compaction, expiry or erasure is under way or has published
            meanwhile, the archive is another database's, or `archive_history` must take it over
            from an earlier version first.
        StickybusError: The database can't be opened.
    """
    check_place(target, table)
    function(progress, key="progress", arguments=3)
    scale = scale_of(scale, file_bytes=file_bytes)
    archive = Archive(own_session(spark), target, table)
    archive.check_begun()
    with (
        opened_for(database, table, "stickybus-compact") as opened,
        files_lock(opened, archive) as connection,
    ):
        found = recovered(archive, opened)
        if not all(found.is_logged(manifest) for manifest in found.manifests):
            raise ArchiveConflictError(
                f"{archive.where} was written by an earlier version of this library. Nothing "
                "was written. Start `stickybus history archive` first, which takes it over.",
                path=archive.where,
            )
        now = opened.fetch(opened.dialect.database_now)
        remove_leftovers(archive, found.manifests, now=now, logged_runs=found.rows)
        days = scattered(live_files(found.manifests), scale.file_bytes)
        if not days:
            return Compacted(table, archive.where)
        rewritten = _rewritten(archive, found.manifests, days, now, progress)
        manifest = publish(archive, opened, rewritten, connection=connection)
    return Compacted(
        table=table,
        target=archive.where,
        run=manifest.run,
        days=len(days),
        entries=manifest.fingerprint.rows,
        files_before=len(manifest.replaces),
        files_after=len(manifest.files),
    )


@dataclass(frozen=True)
class Day:
    """The files of one day, whose rows would fit into `wanted` files."""

    files: list[DataFile]
    wanted: int


def scattered(files: Sequence[DataFile], file_bytes: int) -> dict[str, Day]:
    """The days that have more files than they need, by date."""
    by_day = defaultdict[str, list[DataFile]](list)
    for file in files:
        by_day[file.event_date].append(file)
    days = {
        day: Day(found, -(-sum(file.size_bytes for file in found) // file_bytes))
        for day, found in sorted(by_day.items())
    }
    return {name: day for name, day in days.items() if len(day.files) > day.wanted}


def _rewritten(
    archive: Archive,
    published: Sequence[Manifest],
    days: dict[str, Day],
    now: datetime,
    progress: Progress,
) -> Manifest:
    """Write the files of some days anew, and return the manifest that would replace them."""
    old = [file for day in days.values() for file in day.files]
    expected = _expected(archive, published, old)
    run = new_run(now)
    # Each day goes to as many tasks as it needs files.
    tasks = sum(day.wanted for day in days.values())
    firsts = accumulate((day.wanted for day in days.values()), initial=0)
    name = f.date_format(EVENT_DATE, "yyyy-MM-dd")
    first = f.create_map(*(f.lit(one) for pair in zip(days, firsts, strict=False) for one in pair))[
        name
    ]
    wanted = f.create_map(*(f.lit(one) for key, day in days.items() for one in (key, day.wanted)))[
        name
    ]
    placed = dated(archive.read(old)).repartitionById(
        tasks, first + f.pmod(f.hash("record_id"), wanted)
    )
    with watched(
        archive.spark,
        _STAGES,
        lambda share: progress("copied", int(share * expected.rows), expected.rows),
    ):
        written, files = archive.write(placed, run)
    check_written(archive, run, written, joined([file.fingerprint for file in files]))
    check_rewritten(archive, days, expected, written)
    missing = {name: parts_missing(day.files) for name, day in days.items()}
    files = [msgspec.structs.replace(file, without=missing[file.event_date]) for file in files]
    return replacing(published, Kind.COMPACTION, run, now, old=old, new=files)


def _expected(
    archive: Archive, published: Sequence[Manifest], old: Sequence[DataFile]
) -> Fingerprint:
    """The fingerprint of files over all columns that history has now.

    Manifests tell it, or else the files are read.

    The rows of a file with fewer columns must have its fingerprint over those. Raises
    ArchiveDamagedError.
    """
    now = archive.kind.names
    of_file = {file.path: manifest.hashed for manifest in published for file in manifest.files}
    expected = joined([file.fingerprint for file in old if of_file[file.path] == now])
    for columns in {of_file[file.path] for file in old} - {now}:
        files = [file for file in old if of_file[file.path] == columns]
        sizes = {file.path: file.size_bytes for file in files}
        told, read = (
            joined([file.fingerprint for file in found])
            for found in (files, archive.found(sizes, columns))
        )
        check_rewritten(archive, [file.event_date for file in files], told, read)
        expected += joined([file.fingerprint for file in archive.found(sizes)])
    return expected


def check_rewritten(
    archive: Archive, days: Iterable[str], told: Fingerprint, found: Fingerprint
) -> None:
    """Raises ArchiveDamagedError unless the files of some days hold what their manifests say."""
    if found != told:
        raise ArchiveDamagedError(
            f"{archive.where}: the files of {', '.join(sorted(set(days)))} hold {found.rows} rows, "
            f"which differ from the {told.rows} rows of their manifests. Nothing was replaced. "
            "Find the damaged file: stickybus history verify",
            path=archive.where,
        )
