"""The directory of an archive as Arrow reads it: without Spark, and without Java but for HDFS."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import pyarrow as pa
from pyarrow import fs

from history_pipeline.errors import ArchiveDamagedError, ArchiveTargetError

_CHUNK_BYTES = 1024 * 1024
_SPARK_SCHEMES = {"s3a://": "s3://"}
"""Schemes that only Hadoop knows, and what others call them."""


class ArrowStorage:
    """See `history_pipeline.storage.ReadableStorage`. `root` is the name that Spark would take."""

    def __init__(self, target: str) -> None:
        """Raises ArchiveTargetError for a place that Arrow can't read."""
        self._system, self._path, self.root = _opened(target)

    def names(self, folder: str) -> list[str]:
        """See `ReadableStorage`."""
        try:
            found = self._system.get_file_info(
                fs.FileSelector(self._at(folder), allow_not_found=True, recursive=False)
            )
        except NotADirectoryError:
            return []
        return sorted(one.base_name for one in found)

    def read(self, path: str) -> bytes:
        """See `ReadableStorage`."""
        with self._system.open_input_stream(self._at(path)) as stream:
            return bytes(stream.readall())

    def open(self, path: str) -> Any:
        """A file of Arrow's kind, for reads at any place.

        Raises ArchiveDamagedError if it is missing.
        """
        try:
            return self._system.open_input_file(self._at(path))
        except FileNotFoundError as error:
            raise ArchiveDamagedError(
                f"{self.root}/{path} is missing, though a manifest names it. Nothing was written. If a compaction has "
                "replaced it meanwhile, start again; else bring it back from a copy.",
                path=f"{self.root}/{path}",
            ) from error

    def digest(self, path: str) -> tuple[int, str]:
        """The size of a file in bytes, and its SHA-256 in hexadecimal. Raises as `open`."""
        found, size = hashlib.sha256(), 0
        with self.open(path) as file:
            while content := file.read(_CHUNK_BYTES):
                found.update(content)
                size += len(content)
        return size, found.hexdigest()

    def _at(self, path: str) -> str:
        return f"{self._path}/{path}" if path else self._path


def _opened(target: str) -> tuple[Any, str, str]:
    """The file system of a directory, the directory's path there, and its name."""
    if "://" not in target and not target.startswith("file:"):
        path = os.path.abspath(target)  # noqa: PTH100 -- as Spark: links are not followed
        return fs.LocalFileSystem(), path, path
    known = target.rstrip("/")
    for theirs, ours in _SPARK_SCHEMES.items():
        if known.startswith(theirs):
            known = ours + known.removeprefix(theirs)
    try:
        system, path = fs.FileSystem.from_uri(known)
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise ArchiveTargetError(
            f"{target} is no directory that Arrow can read: {reason}. Nothing was read.",
            target=target,
        ) from error
    return system, path, path if isinstance(system, fs.LocalFileSystem) else target.rstrip("/")
