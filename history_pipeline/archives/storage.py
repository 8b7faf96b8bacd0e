"""The files of a directory that Spark writes to, wherever it is: listed, read, written, removed.

Spark writes the data itself. This module serves manifests, which are copies of rows in the
database: so a storage need not promise that a file appears whole, or only once.
"""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol
from uuid import uuid4

from history_pipeline.errors import ArchiveTargetError
from queue_core.runtime.synced import sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOLDER, _FILE = 0o700, 0o600
"""Modes of folders and files: payloads are nobody else's business."""
_HIDDEN = ("_", ".")
"""First characters of names that Spark does not read.

They are markers, checksums, and files that are still being written.
"""

READERS = 24
"""Files of a remote storage that are read at once. Arrow has 25 connections to S3."""


class ReadableStorage(Protocol):
    """One directory, to be read.

    Paths are relative to it, with slashes; `root` is its name as Spark takes it.
    """

    root: str

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none if there is no such folder."""

    def read(self, path: str) -> bytes:
        """The content of a file."""

    def read_all(self, paths: Sequence[str]) -> list[bytes]:
        """The contents of files, in the same order. Raises as `read`."""


class Storage(ReadableStorage, Protocol):
    """One directory, to be read and written."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes of all files below a folder by path, hidden ones left out."""

    def make(self, folder: str) -> None:
        """Make a folder for its owner alone, unless it is there."""

    def put(self, path: str, content: bytes) -> None:
        """Write a file, for its owner alone, in place of the one that is there.

        Where the storage can, it appears whole or not at all.
        """

    def settle(self, paths: Iterable[str]) -> None:
        """Make files that Spark has written private, and last through a power cut.

        Their folders become private, too, from the run's own folder on.
        """

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; one that is missing is no error."""


def storage_of(spark: SparkSession, target: str) -> Storage:
    """The storage of a path, as Hadoop understands it.

    A path without a scheme is on the configured file system.

    Raises ArchiveTargetError for a path that Spark can't write to.
    """
    if set(target) & set("*?[]{}"):
        raise ArchiveTargetError(
            f"{target}: Spark reads * ? [ ] {{ }} in a path as a pattern. Nothing was read or "
            "written. Name another directory.",
            target=target,
        )
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 -- Hadoop's file systems have no other door
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 -- as above
    try:
        given = jvm.org.apache.hadoop.fs.Path(target)
        system = given.getFileSystem(hadoop)
        path = system.makeQualified(given)
    except Exception as error:
        # py4j's errors hold a whole Java stack.
        reason = str(getattr(error, "java_exception", error)).partition("\n")[0]
        raise ArchiveTargetError(
            f"{target} is no directory that Spark can reach: {reason}. Nothing was read or "
            "written. For object storage give Spark the connector's jar and the credentials.",
            target=target,
        ) from error
    if system.getScheme() == "file":
        return LocalStorage(Path(path.toUri().getPath()))
    return HadoopStorage(jvm, system, path)


class LocalStorage:
    """A directory of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.root = str(root)

    def names(self, folder: str) -> list[str]:
        """See `Storage`."""
        try:
            return sorted(path.name for path in (self._root / folder).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def sizes(self, folder: str) -> dict[str, int]:
        """See `Storage`."""
        return {
            str(path.relative_to(self._root)): path.stat().st_size
            for path in sorted((self._root / folder).rglob("*"))
            if path.is_file() and not hidden(str(path.relative_to(self._root / folder)))
        }

    def make(self, folder: str) -> None:
        """See `Storage`."""
        _make(self._root / folder)

    def read(self, path: str) -> bytes:
        """See `Storage`."""
        return (self._root / path).read_bytes()

    def read_all(self, paths: Sequence[str]) -> list[bytes]:
        """See `Storage`."""
        return [self.read(path) for path in paths]

    def put(self, path: str, content: bytes) -> None:
        """See `Storage`."""
        final = self._root / path
        _make(final.parent)
        new = final.with_name(f".{final.name}.{uuid4().hex}")
        try:
            with self.new(new) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            new.replace(final)
        finally:
            new.unlink(missing_ok=True)
        sync(final.parent)

    def new(self, path: str | Path) -> BinaryIO:
        """A file to be written, for its owner alone, in a folder that is there."""
        return open(self._root / path, "xb", opener=_private)

    def settle(self, paths: Iterable[str]) -> None:
        """See `Storage`."""
        given = set(paths)
        files = {self._root / path for path in given}
        folders = {folder for path in given for folder in _above(path)}
        for file in files:
            file.chmod(_FILE)
            # Hadoop's own checksum. The manifest has a better one, and vouches for no other file.
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
            sync(file)
        for folder in sorted(folders, reverse=True):
            if "/" in folder:
                (self._root / folder).chmod(_FOLDER)
            sync(self._root / folder)
        sync(self._root)

    def remove(self, path: str) -> None:
        """See `Storage`."""
        found = self._root / path
        with suppress(FileNotFoundError):
            if found.is_file():
                found.unlink()
            else:
                shutil.rmtree(found)


class HadoopStorage:
    """A directory of any other file system that Hadoop knows.

    It may be HDFS, or object storage through a connector.
    """

    def __init__(self, jvm: Any, system: Any, path: Any) -> None:
        self._jvm = jvm
        self._system = system
        self._path = path
        self.root = str(path.toString())

    def names(self, folder: str) -> list[str]:
        """See `Storage`."""
        where = self._at(folder)
        if not self._system.exists(where):
            return []
        return sorted(str(status.getPath().getName()) for status in self._system.listStatus(where))

    def sizes(self, folder: str) -> dict[str, int]:
        """See `Storage`."""
        where, found = self._at(folder), dict[str, int]()
        if not self._system.exists(where):
            return found
        start = len(where.toUri().getPath().rstrip("/")) + 1
        files = self._system.listFiles(where, True)
        while files.hasNext():
            status = files.next()
            path = str(status.getPath().toUri().getPath())[start:]
            if not hidden(path):
                found[f"{folder}/{path}"] = int(status.getLen())
        return found

    def make(self, folder: str) -> None:
        """See `Storage`."""
        for where in (self._path, self._at(folder)):
            if not self._system.exists(where):
                self._system.mkdirs(where, self._mode(_FOLDER))

    def read(self, path: str) -> bytes:
        """See `Storage`."""
        stream = self._system.open(self._at(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def read_all(self, paths: Sequence[str]) -> list[bytes]:
        """See `Storage`."""
        return read_together(self.read, paths)

    def put(self, path: str, content: bytes) -> None:
        """See `Storage`."""
        self.make(posixpath.dirname(path))
        where = self._at(path)
        stream = self._system.create(where, True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
        self._system.setPermission(where, self._mode(_FILE))

    def settle(self, paths: Iterable[str]) -> None:
        """See `Storage`: what these file systems have closed, they keep.

        Object storage has no modes, and takes no notice.
        """
        files = set(paths)
        folders = {folder for file in files for folder in _above(file) if "/" in folder}
        for path, mode in (*((one, _FILE) for one in files), *((one, _FOLDER) for one in folders)):
            self._system.setPermission(self._at(path), self._mode(mode))

    def remove(self, path: str) -> None:
        """See `Storage`."""
        self._system.delete(self._at(path), True)

    def _mode(self, mode: int) -> Any:
        return self._jvm.org.apache.hadoop.fs.permission.FsPermission(f"{mode:o}")

    def _at(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, path) if path else self._path


def read_together(read: Callable[[str], bytes], paths: Sequence[str]) -> list[bytes]:
    """The contents of files of a remote storage, in the same order.

    Each costs a round trip or two, so some are under way at once.
    """
    with ThreadPoolExecutor(READERS, "stickybus-archive") as readers:
        return list(readers.map(read, paths))


def _above(path: str) -> Iterator[str]:
    """The folders that a file lies in, the innermost first."""
    while path := posixpath.dirname(path):
        yield path


def _make(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for its owner alone."""
    for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
        missing.mkdir(mode=_FOLDER, exist_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, _FILE)


def hidden(path: str) -> bool:
    """Whether a path is none of a file of rows."""
    return any(part.startswith(_HIDDEN) for part in path.split("/"))
