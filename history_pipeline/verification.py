"""Verification: whether the files of an archive still hold what their manifests say."""

from __future__ import annotations

from dataclasses import dataclass

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships no annotations
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from history_pipeline.archive import Archive
from history_pipeline.fingerprint import joined
from history_pipeline.manifest import DataFile, live_files


@dataclass(frozen=True)
class Verified:
    """What a verification has found. `damaged`: paths of the files that are missing, unreadable, or hold other rows."""

    table: str
    target: str
    manifests: int
    files: int
    entries: int
    damaged: list[str]


def verify_archive(spark: SparkSession, target: str, *, table: str = "bus_events") -> Verified:
    """Read every file of an archive, and compare it with its fingerprint; changes nothing.

    Raises ArchiveNotFoundError, and ArchiveDamagedError if a manifest is missing or can't be read.
    """
    archive = Archive(spark, target, table)
    manifests = archive.open()
    files = live_files(manifests)
    return Verified(
        table=table,
        target=archive.where,
        manifests=len(manifests),
        files=len(files),
        entries=joined([file.fingerprint for file in files]).rows,
        damaged=_damaged(archive, files),
    )


def _damaged(archive: Archive, files: list[DataFile]) -> list[str]:
    sizes = archive.storage.sizes("data")
    there = [file for file in files if file.path in sizes]
    missing = [file.path for file in files if file.path not in sizes]
    return missing + _differing(archive, there, sizes)


def _differing(archive: Archive, files: list[DataFile], sizes: dict[str, int]) -> list[str]:
    """Those that can't be read, or are not what they were; halved until each of them is known."""
    try:
        found = {file.path: file for file in archive.found({file.path: sizes[file.path] for file in files})}
    except (PySparkException, Py4JError):
        if len(files) == 1:
            return [files[0].path]
        half = len(files) // 2
        return _differing(archive, files[:half], sizes) + _differing(archive, files[half:], sizes)
    return [file.path for file in files if found.get(file.path) != file]
