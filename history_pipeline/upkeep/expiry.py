"""Expiry: whole days of an archive go, the oldest ones.

A manifest names their files as replaced, and adds none. From then on no reader sees them. The next
run that comes a day later or more removes them: who reads them by now gets to the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec import structs
from pyspark.sql import SparkSession
from sqlalchemy import URL
from sqlalchemy import Engine as SqlalchemyEngine

from history_pipeline.archives.archive import Archive
from history_pipeline.archives.database import opened_for
from history_pipeline.archives.manifest import (
    DataFile,
    Kind,
    Manifest,
    live_files,
    new_run,
    replacing,
)
from history_pipeline.archives.place import check_place
from history_pipeline.rows.fingerprint import joined
from history_pipeline.session import own_session
from history_pipeline.upkeep.files_lock import files_lock
from history_pipeline.upkeep.leftovers import remove_leftovers
from history_pipeline.upkeep.publication import publish
from history_pipeline.upkeep.recovery import check_finished, recovered
from queue_core.runtime.clock import in_utc


@dataclass(frozen=True)
class Expired:
    """What has gone from an archive: the days from `first_day` to `last_day`, in UTC.

    `run`: None if nothing was old enough.
    """

    table: str
    target: str
    before: datetime
    run: str | None = None
    days: int = 0
    first_day: str | None = None
    last_day: str | None = None
    entries: int = 0
    files: int = 0
    size_bytes: int = 0


def expire_archive(
    spark: SparkSession,
    target: str,
    *,
    database: str | URL | SqlalchemyEngine,
    before: datetime,
    table: str = "bus_events",
) -> Expired:
    """Remove the days of an archive that were over before a date; history is not touched.

    No reader sees their rows any more. The files are removed by the next archive, compaction or
    expiry that comes a day later or more.

    Args:
        spark: A session, as `open_session` returns it.
        target: The directory of the archive.
        database: The database that was archived, which holds the log of the archive.
        before: An aware date. The day (UTC) in which it lies stays.
        table: The main table whose history was archived, or `work_task_history`. Default:
            `bus_events`.

    Returns:
        The days, rows and files that have gone.

    Raises:
        ConfigurationError: An argument is not allowed.
        ArchiveNotFoundError: Nothing was archived there.
        ArchiveDamagedError: A manifest is missing or damaged.
        ArchiveConflictError: Another compaction, expiry or erasure is under way or has published
            meanwhile, the archive is another database's, or `archive_history` must finish a run
            first.
        NaiveDateTimeError: `before` has no time zone.
        StickybusError: The database can't be opened.
    """
    check_place(target, table)
    limit = in_utc(before, key="before")
    archive = Archive(own_session(spark), target, table)
    archive.check_begun()
    with (
        opened_for(database, table, "stickybus-expire") as opened,
        files_lock(opened, archive) as connection,
    ):
        found = recovered(archive, opened)
        check_finished(archive, found)
        now = opened.fetch(opened.dialect.database_now)
        remove_leftovers(archive, found.manifests, now=now, logged_runs=found.rows)
        first_left = limit.astimezone(UTC).date().isoformat()
        old = [file for file in live_files(found.manifests) if file.event_date < first_left]
        if not old:
            return Expired(table, archive.where, limit)
        new = _without(found.manifests, old, limit, now)
        manifest = publish(archive, opened, new, connection=connection)
    days = sorted({file.event_date for file in old})
    return Expired(
        table=table,
        target=archive.where,
        before=limit,
        run=manifest.run,
        days=len(days),
        first_day=days[0],
        last_day=days[-1],
        entries=joined([file.fingerprint for file in old]).rows,
        files=len(old),
        size_bytes=sum(file.size_bytes for file in old),
    )


def _without(
    published: list[Manifest], old: list[DataFile], limit: datetime, now: datetime
) -> Manifest:
    """The manifest by which files leave the archive."""
    new = replacing(published, Kind.EXPIRY, new_run(now), now, old=old, new=[])
    gone = joined([file.fingerprint for file in old])
    return structs.replace(new, expired=gone, before=limit)
