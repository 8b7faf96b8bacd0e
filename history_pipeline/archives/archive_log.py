"""The log of an archive: its manifests in order, wherever they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from history_pipeline.archives.manifest import (
    Manifest,
    decoded,
    digest,
    label,
    manifest_numbers,
    manifest_path,
)
from history_pipeline.archives.storage import ReadableStorage
from history_pipeline.errors import ArchiveDamagedError, ArchiveNotFoundError
from history_pipeline.rows.fingerprint import joined
from history_pipeline.rows.kind import HistoryKind, kind_of

S_co = TypeVar("S_co", bound=ReadableStorage, covariant=True)


class ArchiveLog(Generic[S_co]):
    """The manifests of one archive (by the name of its main table), read from its folder."""

    def __init__(self, storage: S_co, table: str) -> None:
        self.storage = storage
        self.table = table

    @property
    def where(self) -> str:
        """The table's folder, as its storage names it."""
        return self.storage.root

    def open(self) -> list[Manifest]:
        """All manifests, in order.

        Raises ArchiveNotFoundError if no archive was ever begun here, and ArchiveDamagedError.
        """
        self.check_begun()
        return self.manifests()

    def check_begun(self) -> None:
        """Raises ArchiveNotFoundError if no archive was ever begun here."""
        if "manifests" not in self.storage.names(""):
            raise ArchiveNotFoundError(
                f"there is no archive of {self.table} in {self.where}. Nothing was read or "
                "written. Name the directory that was given to `stickybus history archive "
                "--to`.",
                path=self.where,
            )

    def manifests(self) -> list[Manifest]:
        """All manifests, in order; none if there is no archive yet. Raises ArchiveDamagedError."""
        return self.checked(self.contents())

    def contents(self) -> dict[int, bytes]:
        """What the files of all manifests hold, by number, whether it is sound or not."""
        numbers = manifest_numbers(self.storage.names("manifests"))
        contents = self.storage.read_all([manifest_path(number) for number in numbers])
        return dict(zip(numbers, contents, strict=True))

    def name(self) -> str:
        """The name that all manifests give the archive; empty if none of them can be read.

        It is the same however the directory is written, and in a copy of it.
        """
        numbers = manifest_numbers(self.storage.names("manifests"))
        labels = (label(self.storage.read(manifest_path(number))) for number in numbers)
        return next((one.archive for one in labels if one.archive), "")

    def content(self, number: int) -> bytes | None:
        """What the file of one manifest holds now; None if there is none."""
        if number not in manifest_numbers(self.storage.names("manifests")):
            return None
        return self.storage.read(manifest_path(number))

    def checked(self, contents: Mapping[int, bytes]) -> list[Manifest]:
        """The manifests that have these contents, in order.

        Raises ArchiveDamagedError if one is missing or changed.
        """
        found = list[Manifest]()
        before: str | None = None
        for expected, (number, content) in enumerate(sorted(contents.items()), start=1):
            if number != expected:
                raise ArchiveDamagedError(
                    f"{self.where}: {manifest_path(expected)} is missing, though later ones are "
                    "there. Nothing was read or written. The next `stickybus history archive` "
                    "writes it anew if the database has it; else bring it back from a copy of "
                    "the directory. Manifests are never removed.",
                    path=f"{self.where}/{manifest_path(expected)}",
                )
            path = manifest_path(number)
            manifest = decoded(content, f"{self.where}/{path}")
            if manifest.previous_sha256 is not None and manifest.previous_sha256 != before:
                raise ArchiveDamagedError(
                    f"{self.where}/{path} follows another {manifest_path(number - 1)} than the one "
                    "that is there. Nothing was read or written. Bring that back from a copy of "
                    "the directory; manifests never change.",
                    path=f"{self.where}/{manifest_path(number - 1)}",
                )
            before = digest(content)
            _check_erasure(manifest, found, f"{self.where}/{path}")
            found.append(manifest)
        return found

    def digest(self, number: int) -> str:
        """The SHA-256 of the manifest of a number."""
        return digest(self.storage.read(manifest_path(number)))


def _check_erasure(manifest: Manifest, earlier: Sequence[Manifest], where: str) -> None:
    """Raises ArchiveDamagedError if an erasure has changed other rows than it names."""
    if (erased := manifest.erased) is None:
        return
    replaced = set(manifest.replaces)
    old = [
        (one, file.fingerprint) for one in earlier for file in one.files if file.path in replaced
    ]
    same = len(erased.record_ids) == erased.before.rows == erased.after.rows
    # Files of another version of the library may have hashes of fewer columns.
    if all(one.hashed == manifest.hashed for one, _ in old):
        told = joined([fingerprint for _, fingerprint in old]) + erased.after
        found = manifest.fingerprint + erased.before
        same = same and (told.rows, told.total) == (found.rows, found.total)
    if not same:
        raise ArchiveDamagedError(
            f"{where}: the files of erasure {manifest.run} hold other rows than those that they "
            f"replace, besides the {len(erased.record_ids)} erased ones. Nothing was read or "
            "written. Bring the directory back from a copy.",
            path=where,
        )


def archived_tables(storage: ReadableStorage, kind: HistoryKind | None = None) -> list[str]:
    """The names of the archives in a directory; of one kind, if it is given.

    Raises ArchiveNotFoundError if there are none.
    """
    tables = sorted(
        name
        for name in storage.names("")
        if kind in {None, kind_of(name)} and "manifests" in storage.names(name)
    )
    if not tables:
        of_kind = f" of {kind.rows}" if kind else ""
        raise ArchiveNotFoundError(
            f"{storage.root} holds no archive{of_kind}. Nothing was read.", path=storage.root
        )
    return tables
