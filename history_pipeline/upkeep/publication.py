"""Publication of a manifest: a row in the database's log, then a file that is a copy of it."""

from __future__ import annotations

import getpass
import os
import platform
from datetime import datetime
from functools import partial
from posixpath import dirname

import msgspec
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.manifest import (
    Author,
    Kind,
    Manifest,
    digest,
    label,
    manifest_path,
)
from history_pipeline.archives.storage import Storage
from history_pipeline.errors import ArchiveConflictError, ArchiveDamagedError
from sql.database import Database
from sql.families import ARCHIVES
from sql.statements.archives import Archives, Logged


def publish(
    archive: ArchiveLog[Storage],
    database: Database,
    manifest: Manifest,
    *,
    connection: Connection | None = None,
) -> Manifest:
    """Make the files that a manifest names part of the archive.

    The run that commits the row of a number first has the number; the other one takes the next.

    Args:
        archive: The archive. The file of the manifest before is there.
        database: The database whose log it is.
        manifest: The manifest, with the number that seems to be the next free one.
        connection: One that holds a lock: if it is lost, nothing is published.

    Returns:
        The manifest with its number.

    Raises:
        ArchiveConflictError: A run has published meanwhile that has read the same. The files of
            this one are removed.
        ArchiveDamagedError: A file is gone, or has another size.
    """
    archives = database.dialect.statements_for(ARCHIVES)()
    manifest = msgspec.structs.replace(manifest, author=_author(database))
    _check_there(archive, manifest)
    archive.storage.settle(file.path for file in manifest.files)
    while True:
        if manifest.number > 1:
            before = archive.digest(manifest.number - 1)
            manifest = msgspec.structs.replace(manifest, previous_sha256=before)
        content = manifest.encoded()
        now = database.fetch(database.dialect.database_now)
        logged = logged_of(archive, manifest, content, now)
        try:
            with database.begin(connection) as writing:
                archives.enter_published(writing, logged)
        except IntegrityError as error:
            place = (archive.table, manifest.archive, manifest.number)
            other = database.fetch(partial(_logged_at, archives, place))
            if other is None:
                raise
            kind, others_content = other
            _check_apart(archive, manifest, kind, others_content, error)
            write(archive, manifest.number, others_content)
            manifest = msgspec.structs.replace(manifest, number=manifest.number + 1)
        else:
            write(archive, manifest.number, content)
            return manifest


def _check_there(archive: ArchiveLog[Storage], manifest: Manifest) -> None:
    """Raises ArchiveDamagedError unless the files are as they were written.

    Others remove files of a run that has not published for a day: see `remove_leftovers`.
    """
    there = dict[str, int]()
    for folder in {dirname(dirname(file.path)) for file in manifest.files}:
        there |= archive.storage.sizes(folder)
    lost = [file.path for file in manifest.files if there.get(file.path) != file.size_bytes]
    if lost:
        raise ArchiveDamagedError(
            f"{archive.where}/{lost[0]}, one of {len(lost)} files of this run, is gone or has "
            "another size than when it was written. Nothing of this run was published or "
            "deleted. Start it again.",
            path=f"{archive.where}/{lost[0]}",
        )


def _author(database: Database) -> Author:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # In a container, a user need not have a name.
        user = str(os.getuid())
    return Author(user, platform.node(), database.url.username)


def _logged_at(
    archives: Archives, place: tuple[str, str, int], connection: Connection
) -> tuple[str, bytes] | None:
    return archives.at(connection, *place)


def write(archive: ArchiveLog[Storage], number: int, content: bytes) -> None:
    """Write the file of a manifest that the log has, unless it is there.

    Raises ArchiveConflictError if a process of an earlier version has written another one.
    """
    path = manifest_path(number)
    there = archive.content(number)
    if there == content:
        return
    if there is not None and not content.startswith(there):
        raise ArchiveConflictError(
            f"{archive.where}/{path} was published by an earlier version of this library "
            "meanwhile. Nothing was deleted. Start it again.",
            path=f"{archive.where}/{path}",
        )
    archive.storage.put(path, content)


def logged_of(
    archive: ArchiveLog[Storage], manifest: Manifest, content: bytes, now: datetime
) -> Logged:
    """The row of a manifest that has these bytes."""
    return Logged(
        run=manifest.run,
        table_name=archive.table,
        target=archive.where,
        first_id=manifest.first_id,
        last_id=manifest.last_id,
        before_date=manifest.before,
        entries=manifest.entries,
        deleted_date=now,
        manifest_number=manifest.number,
        manifest_sha256=digest(content),
        archive=manifest.archive,
        kind=manifest.kind.value,
        manifest=content,
    )


def _check_apart(
    archive: ArchiveLog[Storage],
    manifest: Manifest,
    other: str,
    content: bytes,
    error: IntegrityError,
) -> None:
    """Raises ArchiveConflictError if two runs may have read the same.

    Archives read history, all others read files.
    """
    if (manifest.kind is Kind.ARCHIVE) == (other == Kind.ARCHIVE):
        archive.storage.remove(f"data/{manifest.run}")
        raise ArchiveConflictError(
            f"{archive.where}/{manifest.path} was published by another {other} meanwhile, run "
            f"{label(content).run}. Nothing of this run was published or deleted. Start it "
            "again.",
            path=f"{archive.where}/{manifest.path}",
        ) from error
