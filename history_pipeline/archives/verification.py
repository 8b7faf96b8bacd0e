"""Verification of an archive without Spark: manifests by their sums, files by size and SHA-256."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sqlalchemy import URL
from sqlalchemy import Engine as SqlalchemyEngine

from history_pipeline.archives.agreement import patient_agreement
from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.archives.database import opened_for
from history_pipeline.archives.manifest import DataFile, Manifest, live_files, manifest_path
from history_pipeline.archives.place import folder
from history_pipeline.archives.storage import ReadableStorage
from history_pipeline.errors import ArchiveDamagedError
from history_pipeline.rows.fingerprint import joined

_THREADS = 8
"""Files that are read at once: object storage answers late."""


@dataclass(frozen=True)
class Verified:
    """The result of a verification.

    `damaged`: paths of the files that are missing, unreadable, or hold something else.
    `lost`: paths of the manifests that are missing, and that the database has. The next archive or
    compaction writes them anew.
    `without_sha256`: number of files whose size alone was compared, because their manifests are of
    format 1, which names no SHA-256.
    """

    table: str
    target: str
    manifests: int
    files: int
    entries: int
    damaged: list[str]
    lost: list[str]
    without_sha256: int = 0


def verify_archive(
    target: str,
    *,
    table: str = "bus_events",
    database: str | URL | SqlalchemyEngine | None = None,
) -> Verified:
    """Compare every file of an archive with the size and SHA-256 in its manifest; change nothing.

    It needs neither Spark nor Java, only the extra `archive`.

    Args:
        target: The directory of the archive.
        table: The main table whose history was archived, or `work_task_history`. Default:
            `bus_events`.
        database: The database that was archived. Only it shows whether the newest manifests are
            there.

    Returns:
        The counts, and the paths of damaged files and lost manifests.

    Raises:
        ConfigurationError: An argument is not allowed.
        ArchiveNotFoundError: Nothing was archived there.
        ArchiveDamagedError: A manifest is missing or changed, or can't be read.
        ArchiveConflictError: The database does not know a run of the archive.
        ArchiveTargetError: The directory can't be reached.
        StickybusError: The database can't be opened.
    """
    storage = ArrowStorage(folder(target, table))
    manifests, lost = manifests_of(ArchiveLog(storage, table), database)
    files = live_files(manifests)
    with ThreadPoolExecutor(_THREADS) as threads:
        sound = list(threads.map(lambda file: _sound(storage, file), files))
    return Verified(
        table=table,
        target=storage.root,
        manifests=len(manifests),
        files=len(files),
        entries=joined([file.fingerprint for file in files]).rows,
        damaged=[file.path for file, whole in zip(files, sound, strict=True) if not whole],
        lost=lost,
        without_sha256=sum(file.sha256 is None for file in files),
    )


def checksums(target: str, *, table: str = "bus_events") -> dict[str, str]:
    """The SHA-256 of each manifest and file of an archive, by its path below the table's folder.

    Those of files are what the manifests say; those of manifests, and of files whose manifests are
    of format 1, are computed now.

    Args:
        target: The directory of the archive.
        table: The main table whose history was archived, or `work_task_history`. Default:
            `bus_events`.

    Returns:
        The sums in hexadecimal, as `sha256sum` writes them.

    Raises:
        ConfigurationError: An argument is not allowed.
        ArchiveNotFoundError: Nothing was archived there.
        ArchiveDamagedError: A manifest is missing or changed, or can't be read.
        ArchiveTargetError: The directory can't be reached.
    """
    storage = ArrowStorage(folder(target, table))
    log = ArchiveLog(storage, table)
    manifests = log.open()
    return {manifest.path: log.digest(manifest.number) for manifest in manifests} | {
        file.path: file.sha256 or storage.digest(file.path)[1] for file in live_files(manifests)
    }


def manifests_of(
    log: ArchiveLog[ReadableStorage], database: str | URL | SqlalchemyEngine | None
) -> tuple[list[Manifest], list[str]]:
    """All manifests, and the paths of those that only the database has, if one is given.

    Raises as `verify_archive`.
    """
    if database is None:
        return log.open(), []
    log.check_begun()
    with opened_for(database, log.table, "stickybus-verify") as opened:
        found = patient_agreement(log, opened)
    return found.manifests, [manifest_path(number) for number in sorted(found.lost)]


def check_sound(storage: ArrowStorage, file: DataFile) -> None:
    """Raises ArchiveDamagedError unless a file is the one that its manifest names."""
    if not _sound(storage, file):
        raise not_sound(storage, file)


def not_sound(storage: ArrowStorage, file: DataFile) -> ArchiveDamagedError:
    """The error about a file that is missing, or another than its manifest names."""
    where = f"{storage.root}/{file.path}"
    return ArchiveDamagedError(
        f"{where} is missing, or is not the file that its manifest names. Nothing was written. "
        "If a compaction or an erasure has replaced it meanwhile, start again; else bring it "
        "back from a copy.",
        path=where,
    )


def _sound(storage: ArrowStorage, file: DataFile) -> bool:
    try:
        size, digest = storage.digest(file.path)
    except (ArchiveDamagedError, OSError):
        return False
    return size == file.size_bytes and file.sha256 in {None, digest}
