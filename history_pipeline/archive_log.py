"""The log of an archive: its manifests in order, wherever they are stored."""

from __future__ import annotations

from typing import Generic, TypeVar

from history_pipeline.errors import ArchiveDamagedError, ArchiveNotFoundError
from history_pipeline.manifest import (
    Manifest,
    decoded,
    digest,
    manifest_numbers,
    manifest_path,
)
from history_pipeline.storage import ReadableStorage

S_co = TypeVar("S_co", bound=ReadableStorage, covariant=True)


class ArchiveLog(Generic[S_co]):
    """The manifests of one table (by the name of its main table), read from its folder."""

    def __init__(self, storage: S_co, table: str) -> None:
        self.storage = storage
        self.table = table

    @property
    def where(self) -> str:
        """The table's folder, as its storage names it."""
        return self.storage.root

    def open(self) -> list[Manifest]:
        """All manifests, in order.

        Raises ArchiveNotFoundError if no archive was ever begun here.
        """
        if "manifests" not in self.storage.names(""):
            raise ArchiveNotFoundError(
                f"there is no archive of {self.table} in {self.where}. Nothing was read or written. Name the directory "
                "that was given to `stickybus history archive --to`.",
                path=self.where,
            )
        return self.manifests()

    def manifests(self) -> list[Manifest]:
        """All manifests, in order; none if there is no archive yet. Raises ArchiveDamagedError."""
        found = list[Manifest]()
        before: str | None = None
        for number in manifest_numbers(self.storage.names("manifests"), self.where):
            path = manifest_path(number)
            content = self.storage.read(path)
            manifest = decoded(content, f"{self.where}/{path}")
            if manifest.previous_sha256 is not None and manifest.previous_sha256 != before:
                raise ArchiveDamagedError(
                    f"{self.where}/{path} follows another {manifest_path(number - 1)} than the one that is there. Nothing "
                    "was read or written. Bring that back from a copy of the directory; manifests never change.",
                    path=f"{self.where}/{manifest_path(number - 1)}",
                )
            before = digest(content)
            found.append(manifest)
        return found

    def digest(self, number: int) -> str:
        """The SHA-256 of the manifest of a number."""
        return digest(self.storage.read(manifest_path(number)))


def archived_tables(storage: ReadableStorage) -> list[str]:
    """The main tables whose history is archived in a directory, by name.

    Raises ArchiveNotFoundError if there are none.
    """
    tables = sorted(name for name in storage.names("") if "manifests" in storage.names(name))
    if not tables:
        raise ArchiveNotFoundError(
            f"{storage.root} holds no archive. Nothing was read.", path=storage.root
        )
    return tables
