"""The agreement of an archive's files with the database's log of it.

The log has a row for each run, which was entered before the manifest's file was written. So a file
that is missing can be written anew, and a file that the log does not know is of another database,
or of a newer state of this one. Only runs of earlier versions may lack their rows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Row

from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.manifest import (
    LOGGED_FORMAT,
    Kind,
    Manifest,
    digest,
    label,
    manifest_path,
)
from history_pipeline.archives.storage import ReadableStorage
from history_pipeline.errors import ArchiveConflictError, ArchiveDamagedError
from sql.database import Database
from sql.families import ARCHIVES
from sql.statements.archives import PUBLISHED, Archives

_PATIENCE_SECONDS, _PAUSE_SECONDS = 2.0, 0.1
"""How long a reader looks again for the file of a manifest, and how long it waits before."""


@dataclass(frozen=True)
class Agreement:
    """The state of an archive.

    Attributes:
        manifests: All of them, in order, from files or from the log.
        rows: The rows of the log, by run.
        lost: The bytes of manifests whose files are missing or torn, by number.
        superseded: Published runs whose number an earlier version has given to another run.
    """

    manifests: list[Manifest]
    rows: dict[str, Row[Any]]
    lost: dict[int, bytes]
    superseded: list[str]

    def is_logged(self, manifest: Manifest) -> bool:
        """Whether the log holds the manifest's bytes; it may lack those of earlier versions."""
        row = self.rows.get(manifest.run)
        return row is not None and row.state is not None

    @property
    def unfinished(self) -> list[Manifest]:
        """The runs whose rows of history are still to be deleted."""
        deleted = {run for run, row in self.rows.items() if row.state != PUBLISHED}
        return [
            one for one in self.manifests if one.kind is Kind.ARCHIVE and one.run not in deleted
        ]


def agreement(archive: ArchiveLog[ReadableStorage], database: Database) -> Agreement:
    """Compare the manifests' files with the log; changes nothing.

    Rows count that name this archive or directory, or one that it was copied from.

    Raises:
        ArchiveDamagedError: A manifest is changed, or missing and not in the log.
        ArchiveConflictError: The log does not know a run: it is older than the files, or another
            database's.
    """
    archives = database.dialect.statements_for(ARCHIVES)()
    contents = archive.contents()
    rows = _rows(archive, contents, database, archives)
    lost, superseded = dict[int, bytes](), list[str]()
    for row in rows.values():
        if row.state is None:
            continue
        number = row.manifest_number
        # A run that is at work may have written it meanwhile.
        content = contents.get(number) or archive.content(number) or b""
        if digest(content) == row.manifest_sha256:
            contents[number] = content
            continue
        logged = database.fetch(partial(archives.manifest, run=row.run))
        if logged.startswith(content):
            lost[number] = logged
        elif row.state == PUBLISHED and label(content).format < LOGGED_FORMAT:
            superseded.append(row.run)
        else:
            raise _damaged(archive, row, "is not the one that was published")
    for run in superseded:
        del rows[run]
    manifests = archive.checked(contents | lost)
    _check_rows_of_earlier_versions(archive, contents, manifests, rows)
    for manifest in manifests:
        if manifest.format >= LOGGED_FORMAT and manifest.run not in rows:
            raise ArchiveConflictError(
                f"{archive.where}/{manifest.path}: the database does not know run {manifest.run}, "
                f"which is of {manifest.database or 'the database that was archived'}. Either it "
                "is an older copy of that database, or another one. Nothing was archived, "
                "written or removed. Bring back its newest copy, or name another directory for "
                "this database.",
                path=f"{archive.where}/{manifest.path}",
            )
    return Agreement(manifests, rows, lost, superseded)


def patient_agreement(archive: ArchiveLog[ReadableStorage], database: Database) -> Agreement:
    """As `agreement`, for who only reads, and writes no lost manifest anew.

    A run commits the row of a manifest, and then writes the file: a reader that comes between waits
    for it.
    """
    found = agreement(archive, database)
    # By time: in object storage one look at all manifests may take seconds.
    until = time.monotonic() + _PATIENCE_SECONDS
    while found.lost and time.monotonic() < until:
        time.sleep(_PAUSE_SECONDS)
        found = agreement(archive, database)
    return found


def check_agreement(archive: ArchiveLog[ReadableStorage], database: Database) -> list[Manifest]:
    """All manifests, for a reader of both files and database.

    Raises as `agreement`, and ArchiveDamagedError if a manifest's file is missing.
    """
    found = patient_agreement(archive, database)
    for number in found.lost:
        manifest = found.manifests[number - 1]
        raise ArchiveDamagedError(
            f"{archive.where}/{manifest.path}: the manifest of run {manifest.run} is missing. "
            "Nothing was read. The next `stickybus history archive` or `compact` writes it anew "
            "from the database.",
            path=f"{archive.where}/{manifest.path}",
        )
    return found.manifests


def _rows(
    archive: ArchiveLog[ReadableStorage],
    contents: Mapping[int, bytes],
    database: Database,
    archives: Archives,
) -> dict[str, Row[Any]]:
    entered = database.fetch(lambda connection: archives.entered(connection, archive.table))
    labels = [label(content) for content in contents.values()]
    runs, names = {one.run for one in labels}, {one.archive for one in labels}
    places = {archive.where} | {row.target for row in entered if row.run in runs}
    return {row.run: row for row in entered if row.target in places or row.archive in names}


def _check_rows_of_earlier_versions(
    archive: ArchiveLog[ReadableStorage],
    contents: Mapping[int, bytes],
    manifests: list[Manifest],
    rows: Mapping[str, Row[Any]],
) -> None:
    """Raises ArchiveDamagedError if the manifest of a deleted run is missing, or another one."""
    numbers = {manifest.run: manifest.number for manifest in manifests}
    for row in rows.values():
        if row.state is not None:
            continue
        if row.run not in numbers:
            raise _damaged(archive, row, "is missing")
        if row.manifest_sha256 and digest(contents[numbers[row.run]]) != row.manifest_sha256:
            raise _damaged(archive, row, "is not the one that was published")


def _damaged(
    archive: ArchiveLog[ReadableStorage], row: Row[Any], problem: str
) -> ArchiveDamagedError:
    path = archive.where
    if row.manifest_number:
        path += f"/{manifest_path(row.manifest_number)}"
    cure = (
        "Bring the directory back from its newest copy."
        if row.state is None
        else (
            "Move the file away: the next `stickybus history archive` writes it anew from the "
            "database."
        )
    )
    return ArchiveDamagedError(
        f"{path}: the manifest of run {row.run} {problem}. The run has {row.entries} rows "
        f"({row.first_id} to {row.last_id}). Nothing was read, written or removed. {cure}",
        path=path,
    )
