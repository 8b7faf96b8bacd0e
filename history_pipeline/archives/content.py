"""Verification of an archive by content: Spark reads every row, and computes the fingerprints."""

from __future__ import annotations

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships no annotations
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlalchemy import URL
from sqlalchemy import Engine as SqlalchemyEngine

from history_pipeline.archives.archive import Archive
from history_pipeline.archives.manifest import DataFile, Manifest, live_files
from history_pipeline.archives.place import check_place
from history_pipeline.archives.verification import Verified, manifests_of
from history_pipeline.rows.fingerprint import joined


def verify_content(
    spark: SparkSession,
    target: str,
    *,
    table: str = "bus_events",
    database: str | URL | SqlalchemyEngine | None = None,
) -> Verified:
    """Read every row of an archive, and compare with fingerprints and SHA-256; change nothing.

    `verify_archive` compares sizes and SHA-256 alone, in a fraction of the time.

    Args:
        spark: A session, as `open_session` returns it.
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
        StickybusError: The database can't be opened.
    """
    check_place(target, table)
    archive = Archive(spark, target, table)
    manifests, lost = manifests_of(archive, database)
    files = live_files(manifests)
    return Verified(
        table=table,
        target=archive.where,
        manifests=len(manifests),
        files=len(files),
        entries=joined([file.fingerprint for file in files]).rows,
        damaged=[path for manifest in manifests for path in _damaged(archive, manifest, files)],
        lost=lost,
    )


def _damaged(archive: Archive, manifest: Manifest, live: list[DataFile]) -> list[str]:
    """Return the damaged ones of the files that a manifest has added and none has replaced."""
    files = [file for file in manifest.files if file in live]
    sizes = archive.storage.sizes(f"data/{manifest.run}")
    there = [file for file in files if file.path in sizes]
    missing = [file.path for file in files if file.path not in sizes]
    return missing + _differing(archive, there, sizes, manifest.hashed)


def _differing(
    archive: Archive, files: list[DataFile], sizes: dict[str, int], columns: tuple[str, ...]
) -> list[str]:
    """Return the files that can't be read, or have changed.

    The list is halved until each of them is known.
    """
    try:
        read = archive.found({file.path: sizes[file.path] for file in files}, columns)
    except (PySparkException, Py4JError):
        if len(files) == 1:
            return [files[0].path]
        half = len(files) // 2
        halves = (files[:half], files[half:])
        return [path for some in halves for path in _differing(archive, some, sizes, columns)]
    found = {file.path: file for file in read}
    return [file.path for file in files if not _same(file, found.get(file.path))]


def _same(told: DataFile, found: DataFile | None) -> bool:
    """Whether a file is what its manifest says; one of format 1 names no SHA-256."""
    if found is None:
        return False
    sha256 = found.sha256 if told.sha256 else None
    return told == msgspec.structs.replace(found, sha256=sha256, without=told.without)
