"""The directory of an archive by Arrow: without Spark, and without Java but for HDFS."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from posixpath import dirname
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow import fs

from history_pipeline.archives.storage import LocalStorage, hidden, read_together
from history_pipeline.errors import ArchiveDamagedError, ArchiveTargetError

_CHUNK_BYTES = 1024 * 1024
"""Bytes of a file that are hashed at a time."""
_SPARK_SCHEMES = {"s3a://": "s3://"}
"""Schemes that only Hadoop knows, and what others call them."""


class ArrowStorage:
    """See `history_pipeline.archives.storage.Storage`.

    `root` is the name that Spark would take, `url` the one that others would.
    """

    def __init__(self, target: str) -> None:
        """Raises ArchiveTargetError for a place that Arrow can't read."""
        self._system, self._path, self.root = _opened(target)
        self.url = _known(self.root)
        local = isinstance(self._system, fs.LocalFileSystem)
        self._local = LocalStorage(Path(self._path)) if local else None

    def names(self, folder: str) -> list[str]:
        """See `ReadableStorage`. Raises ArchiveTargetError if the storage can't be reached."""
        try:
            found = self._system.get_file_info(
                fs.FileSelector(self._at(folder), allow_not_found=True, recursive=False)
            )
        except NotADirectoryError:
            return []
        except OSError as error:
            raise ArchiveTargetError(
                f"{self.root} can't be reached: {_first_line(error)}. Nothing was read.",
                target=self.root,
            ) from error
        return sorted(one.base_name for one in found)

    def read(self, path: str) -> bytes:
        """See `ReadableStorage`."""
        with self._system.open_input_stream(self._at(path)) as stream:
            return bytes(stream.readall())

    def read_all(self, paths: Sequence[str]) -> list[bytes]:
        """See `ReadableStorage`."""
        return (
            [self.read(path) for path in paths] if self._local else read_together(self.read, paths)
        )

    def open(self, path: str) -> Any:
        """A file of Arrow's kind, for reads at any place.

        Raises ArchiveDamagedError if it is missing.
        """
        try:
            return self._system.open_input_file(self._at(path))
        except FileNotFoundError as error:
            raise ArchiveDamagedError(
                f"{self.root}/{path} is missing, though a manifest names it. Nothing was written. "
                "If a compaction or an erasure has replaced it meanwhile, start again; else "
                "bring it back from a copy.",
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

    def sizes(self, folder: str) -> dict[str, int]:
        """See `Storage`."""
        where = self._at(folder)
        found = self._system.get_file_info(
            fs.FileSelector(where, allow_not_found=True, recursive=True)
        )
        below = {one.path[len(where) + 1 :]: one.size for one in found if one.is_file}
        return {f"{folder}/{path}": size for path, size in below.items() if not hidden(path)}

    def make(self, folder: str) -> None:
        """See `Storage`."""
        if self._local:
            self._local.make(folder)
        else:
            self._system.create_dir(self._at(folder), recursive=True)

    def put(self, path: str, content: bytes) -> None:
        """See `Storage`."""
        if self._local:
            self._local.put(path, content)
        else:
            with self.new(path) as file:
                file.write(content)

    def new(self, path: str) -> BinaryIO | pa.NativeFile:
        """A file to be written, for its owner alone, in a folder that is made."""
        self.make(dirname(path))
        if self._local:
            return self._local.new(path)
        return self._system.open_output_stream(self._at(path))

    def settle(self, paths: Iterable[str]) -> None:
        """See `Storage`: what object storage has closed, it keeps."""
        if self._local:
            self._local.settle(paths)

    def remove(self, path: str) -> None:
        """See `Storage`."""
        if self._local:
            self._local.remove(path)
            return
        where = self._at(path)
        if self._system.get_file_info(where).type == fs.FileType.Directory:
            self._system.delete_dir(where)
        else:
            with suppress(FileNotFoundError):
                self._system.delete_file(where)

    def _at(self, path: str) -> str:
        return f"{self._path}/{path}" if path else self._path


def _opened(target: str) -> tuple[Any, str, str]:
    """The file system of a directory, the directory's path there, and its name."""
    if "://" not in target and not target.startswith("file:"):
        path = os.path.abspath(target)  # noqa: PTH100 -- as Spark: links are not followed
        return fs.LocalFileSystem(), path, path
    # As Hadoop: to object storage, two slashes are not one.
    scheme, mark, place = target.rpartition("://")
    name = scheme + mark + re.sub("/+", "/", place).rstrip("/")
    try:
        system, path = fs.FileSystem.from_uri(_known(name))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ArchiveTargetError(
            f"{target} is no directory that Arrow can read: {_first_line(error)}. Nothing was "
            "read.",
            target=target,
        ) from error
    return system, path, path if isinstance(system, fs.LocalFileSystem) else name


def _known(name: str) -> str:
    """The name of a directory in a scheme that not only Hadoop knows."""
    for theirs, ours in _SPARK_SCHEMES.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return name


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
