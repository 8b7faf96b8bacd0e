"""The changes of an archive: who changed what, and when, as the manifests tell it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import URL
from sqlalchemy import Engine as SqlalchemyEngine

from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.archives.manifest import Author, Kind, Manifest
from history_pipeline.archives.place import folder
from history_pipeline.archives.verification import manifests_of
from history_pipeline.rows.parts import Part


@dataclass(frozen=True)
class Change:
    """One change of an archive.

    Attributes:
        number: Of its manifest.
        run: Its name.
        kind: What was done.
        began: When the run began, by the database's clock, in UTC.
        author: Who did it; None if an earlier version of this library has.
        entries: Number of entries that were archived, rewritten, expired or erased.
        first_id: The lowest id in the files that it has added or removed.
        last_id: The highest one.
        before: Of an archive or expiry: the date before which these entries had ended.
        files_added: Number of files.
        files_replaced: Number of files that are no part of the archive since then.
        without: The parts that entries in the added files lack, because a run left them out.
    """

    number: int
    run: str
    kind: Kind
    began: datetime
    author: Author | None
    entries: int
    first_id: int
    last_id: int
    before: datetime
    files_added: int
    files_replaced: int
    without: list[Part] = field(default_factory=list)


def archive_changes(
    target: str,
    *,
    table: str = "bus_events",
    database: str | URL | SqlalchemyEngine | None = None,
) -> list[Change]:
    """All changes that an archive has seen, in their order.

    It needs neither Spark nor Java, only the extra `archive`.

    Args:
        target: The directory of the archive.
        table: The main table whose history was archived, or `work_task_history`. Default:
            `bus_events`.
        database: The database that was archived. Only it shows whether the newest changes are
            there.

    Returns:
        A change for each manifest, which are never changed or removed.

    Raises:
        ConfigurationError: An argument is not allowed.
        ArchiveNotFoundError: Nothing was archived there.
        ArchiveDamagedError: A manifest is missing or changed, or can't be read.
        ArchiveConflictError: The database does not know a run of the archive.
        ArchiveTargetError: The directory can't be reached.
        StickybusError: The database can't be opened.
    """
    log = ArchiveLog(ArrowStorage(folder(target, table)), table)
    manifests, _lost = manifests_of(log, database)
    return [_change(manifest) for manifest in manifests]


def _change(manifest: Manifest) -> Change:
    return Change(
        number=manifest.number,
        run=manifest.run,
        kind=manifest.kind,
        began=manifest.created,
        author=manifest.author,
        entries=manifest.entries,
        first_id=manifest.first_id,
        last_id=manifest.last_id,
        before=manifest.before,
        files_added=len(manifest.files),
        files_replaced=len(manifest.replaces),
        without=manifest.without,
    )
