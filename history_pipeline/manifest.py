"""Manifests: the log that says which files an archive consists of.

They are numbered from 1 and never changed or removed, so that a reader who sees the numbers 1 to n sees one state of
the archive. Each adds files; a compaction also names those that its own replace.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

import msgspec

from history_pipeline.errors import ArchiveDamagedError
from history_pipeline.fingerprint import Fingerprint

_RUN_DATE = "%Y%m%dT%H%M%S%fZ"
_NAME = re.compile(r"(\d{8})\.json")


class Kind(StrEnum):
    """What published a manifest."""

    ARCHIVE = "archive"
    COMPACTION = "compaction"


class DataFile(msgspec.Struct, frozen=True):
    """One Parquet file: its path below the table's folder, the day (UTC) on which its entries ended, and its rows."""

    path: str
    event_date: str
    size_bytes: int
    first_id: int
    last_id: int
    fingerprint: Fingerprint


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What one run has added to the archive of a table. Dates are in UTC.

    `archive` is the run of manifest 1, which names the archive as a whole. The rows are all those of the history of
    `database` with ids from `first_id` to `last_id` that ended before `before`; of a compaction, those of the files
    that it replaces, which it gives the same dates and ids.
    """

    format: Literal[1] = 1
    number: int
    kind: Kind
    run: str
    archive: str
    table: str
    created: datetime
    fingerprint: Fingerprint
    files: list[DataFile]
    replaces: list[str] = []
    database: str | None = None
    first_id: int
    last_id: int
    before: datetime

    @property
    def path(self) -> str:
        """Its own file, below the table's folder."""
        return manifest_path(self.number)

    def encoded(self) -> bytes:
        """As it is written: JSON that people can read."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def manifest_path(number: int) -> str:
    """The file of the manifest of a number, below the table's folder."""
    return f"manifests/{number:08}.json"


def manifest_numbers(names: Iterable[str], where: str) -> list[int]:
    """The numbers of all manifests, from the names in their folder. Raises ArchiveDamagedError if one is missing."""
    numbers = sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))
    for expected, number in enumerate(numbers, start=1):
        if number != expected:
            raise ArchiveDamagedError(
                f"{where}: {manifest_path(expected)} is missing, though later ones are there. Nothing was read or "
                "written. Bring it back from a copy of the directory; manifests are never removed.",
                path=f"{where}/{manifest_path(expected)}",
            )
    return numbers


def decoded(content: bytes, where: str) -> Manifest:
    """The manifest that a file holds. Raises ArchiveDamagedError."""
    try:
        return msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        raise ArchiveDamagedError(
            f"{where} is no manifest that this version can read: {error}. Nothing was read or written.",
            path=where,
        ) from error


def live_files(manifests: Sequence[Manifest]) -> list[DataFile]:
    """The files that make up the archive, in the order of their publication."""
    replaced = {path for manifest in manifests for path in manifest.replaces}
    return [file for manifest in manifests for file in manifest.files if file.path not in replaced]


def new_run(now: datetime) -> str:
    """A name for a run that no other has, which tells when it began."""
    return f"{now.astimezone(UTC).strftime(_RUN_DATE)}-{secrets.token_hex(4)}"


def run_began(run: str) -> datetime | None:
    """When a run began, by its name; None if it is no name of a run."""
    try:
        return datetime.strptime(run.partition("-")[0], _RUN_DATE).replace(tzinfo=UTC)
    except ValueError:
        return None
