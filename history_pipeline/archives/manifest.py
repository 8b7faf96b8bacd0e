"""Manifests: the log that says which files an archive consists of.

They are numbered from 1 and never changed or removed. So a reader who sees the numbers 1 to n sees
one state of the archive. Each manifest adds files; that of a compaction also names the files which
its own replace, and so does that of an erasure, which says what differs. That of an expiry only
names files that go. Each ends with the SHA-256 of its
own bytes and names that of the one before, and the table `queue_archives` holds the bytes of each.
So none can vanish or change unseen.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

import msgspec

from history_pipeline.errors import ArchiveDamagedError
from history_pipeline.rows.columns import HISTORY_COLUMNS, ArchivedColumn
from history_pipeline.rows.fingerprint import HASH_VERSION, Fingerprint, joined
from history_pipeline.rows.kind import kind_of
from history_pipeline.rows.parts import Part

_SEALED = re.compile(rb'(.*),\n  "sha256": "([0-9a-f]{64})"\n}\n', re.DOTALL)
"""A manifest's bytes before its last field, and the SHA-256 of these in that field."""
_RUN_DATE = "%Y%m%dT%H%M%S%fZ"


class Kind(StrEnum):
    """The kind of run that published a manifest."""

    ARCHIVE = "archive"
    COMPACTION = "compaction"
    EXPIRY = "expiry"
    ERASURE = "erasure"


class DataFile(msgspec.Struct, frozen=True):
    """One Parquet file and its rows.

    `path` is below the table's folder. `event_date` is the day (UTC) on which the entries ended.

    `sha256` is that of its bytes, in hexadecimal; None in manifests of format 1. `without` names
    the parts that its entries lack, because the run that archived them left these out; after a
    compaction of several runs, some of its entries. The fingerprint is that of the rows without
    them.
    """

    path: str
    event_date: str
    size_bytes: int
    first_id: int
    last_id: int
    fingerprint: Fingerprint
    sha256: str | None = None
    without: list[Part] = []


class Erasure(msgspec.Struct, frozen=True):
    """The rows that an erasure has emptied, by their ids, ascending.

    `before` is their fingerprint in the files that were replaced, `after` that in the new files.
    """

    record_ids: list[int]
    before: Fingerprint
    after: Fingerprint


class Author(msgspec.Struct, frozen=True):
    """Who has published a manifest: a user of the operating system on a host, and the database's.

    `database_user` is None if the database's URL names none, as that of SQLite.
    """

    user: str
    host: str
    database_user: str | None = None


_SEALED_FORMAT = 3
"""The first format whose manifests end with their SHA-256."""
LOGGED_FORMAT = 4
"""The first format whose manifests are in the database's log before their files are written."""
_FORMAT_1_COLUMNS = 28
"""The columns, the first of today's, that history had when manifests did not name columns."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The files that one run has added to the archive of a table. Dates are in UTC.

    `archive` is the run of manifest 1, which names the archive as a whole. The rows are all those
    of the history of `database` with ids from `first_id` to `last_id` that ended before `before`;
    of a compaction, those of the files that it replaces, which it gives the same dates and ids. An
    expiry has no rows: `expired` is the fingerprint of those that go with the files it `replaces`.
    An erasure has the rows of the files that it replaces: `erased` tells which of them it has
    emptied. `author` is None in manifests of earlier versions.
    From format 3 on, a last field `sha256` follows those that are declared here.
    `columns` (in order) and `hash_version` say what the fingerprints cover; `previous_sha256` is
    that of the manifest before, None in the first and in format 1.
    """

    format: Literal[1, 2, 3, 4] = 4
    number: int
    kind: Kind
    run: str
    archive: str
    table: str
    created: datetime
    fingerprint: Fingerprint
    files: list[DataFile]
    replaces: list[str] = []
    expired: Fingerprint | None = None
    erased: Erasure | None = None
    database: str | None = None
    author: Author | None = None
    first_id: int
    last_id: int
    before: datetime
    columns: list[ArchivedColumn] = []
    hash_version: int = HASH_VERSION
    previous_sha256: str | None = None

    @property
    def hashed(self) -> tuple[str, ...]:
        """The names of the columns that the fingerprints cover."""
        return tuple(column.name for column in self.columns or HISTORY_COLUMNS[:_FORMAT_1_COLUMNS])

    @property
    def without(self) -> list[Part]:
        """The parts that entries in its files lack."""
        return parts_missing(self.files)

    @property
    def entries(self) -> int:
        """The number of entries that its run was about."""
        return (self.erased.before if self.erased else self.expired or self.fingerprint).rows

    @property
    def path(self) -> str:
        """Its own file, below the table's folder."""
        return manifest_path(self.number)

    def encoded(self) -> bytes:
        """Return the manifest as it is written: JSON that people can read."""
        head = msgspec.json.format(msgspec.json.encode(self), indent=2).removesuffix(b"\n}")
        return head + b',\n  "sha256": "%b"\n}\n' % digest(head).encode()


def replacing(
    published: Sequence[Manifest],
    kind: Kind,
    run: str,
    created: datetime,
    *,
    old: Sequence[DataFile],
    new: list[DataFile],
) -> Manifest:
    """The manifest after all `published` ones, by which new files take the place of old ones."""
    return Manifest(
        number=len(published) + 1,
        kind=kind,
        run=run,
        archive=published[0].archive,
        table=published[0].table,
        created=created,
        fingerprint=joined([file.fingerprint for file in new]),
        files=new,
        replaces=[file.path for file in old],
        first_id=min(file.first_id for file in old),
        last_id=max(file.last_id for file in old),
        before=max(manifest.before for manifest in published),
        columns=[*kind_of(published[0].table).columns],
    )


def parts_missing(files: Iterable[DataFile]) -> list[Part]:
    """The parts that entries in some files lack, because they were left out."""
    missing = {part for file in files for part in file.without}
    return [part for part in Part if part in missing]


def manifest_path(number: int) -> str:
    """The file of the manifest of a number, below the table's folder."""
    return f"manifests/{number:08}.json"


def manifest_numbers(names: Iterable[str]) -> list[int]:
    """The numbers of all manifests, ascending, from the names in their folder."""
    return numbers_of(names, ".json")


def numbers_of(names: Iterable[str], suffix: str) -> list[int]:
    """The numbers, ascending, of the names that are eight digits and a suffix."""
    form = re.compile(rf"(\d{{8}}){re.escape(suffix)}")
    return sorted(int(match[1]) for name in names if (match := form.fullmatch(name)))


def decoded(content: bytes, where: str) -> Manifest:
    """The manifest that a file holds. Raises ArchiveDamagedError."""
    sealed = _SEALED.fullmatch(content)
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ArchiveDamagedError(
            f"{where} is no manifest that this version can read: {error}. Nothing was read or "
            "written.",
            path=where,
        ) from error
    if (digest(sealed[1]).encode() != sealed[2]) if sealed else manifest.format >= _SEALED_FORMAT:
        raise ArchiveDamagedError(
            f"{where} was changed: it does not have the SHA-256 that it ends with. Nothing was "
            "read or written. Bring it back from a copy of the directory; manifests never "
            "change.",
            path=where,
        )
    if manifest.hash_version != HASH_VERSION:
        raise ArchiveDamagedError(
            f"{where} has fingerprints of version {manifest.hash_version}, this version of the "
            f"library computes {HASH_VERSION}. Nothing was read or written. Install the newer "
            "stickybus that wrote it.",
            path=where,
        )
    total = joined([file.fingerprint for file in manifest.files])
    if total != manifest.fingerprint:
        raise ArchiveDamagedError(
            f"{where} says that it has {manifest.fingerprint.rows} rows, but the {total.rows} rows "
            "of its files differ. Nothing was read or written. Bring it back from a copy of the "
            "directory; manifests never change.",
            path=where,
        )
    return manifest


class Label(msgspec.Struct):
    """What a manifest says first, read without a check of the rest: for a comparison only."""

    format: int = LOGGED_FORMAT
    run: str = ""
    archive: str = ""


def label(content: bytes) -> Label:
    """The label of a file that may be no manifest, or a torn one."""
    try:
        return msgspec.json.decode(content, type=Label)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Label()


def digest(content: bytes) -> str:
    """The SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def live_files(manifests: Sequence[Manifest]) -> list[DataFile]:
    """The files that make up the archive, in the order of their publication."""
    replaced = {path for manifest in manifests for path in manifest.replaces}
    return [file for manifest in manifests for file in manifest.files if file.path not in replaced]


def new_run(now: datetime) -> str:
    """Return a name for a run. No other run has it, and it holds the time when the run began."""
    return f"{now.astimezone(UTC).strftime(_RUN_DATE)}-{secrets.token_hex(4)}"


def run_began(run: str) -> datetime | None:
    """When a run began, by its name; None if it is no name of a run."""
    try:
        return datetime.strptime(run.partition("-")[0], _RUN_DATE).replace(tzinfo=UTC)
    except ValueError:
        return None
