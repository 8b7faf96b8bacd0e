"""The lock of an archive's files: who compacts, expires or erases excludes the others.

They replace files that they have read, so of two at once only one could publish, after both had
done all the work. And an erasure would not know of files that the other one is still writing. An
archive adds files, and needs no such lock.

It goes by the name that the manifests give their archive, and not by the directory: that has many
spellings, and another path on each machine that mounts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.manifest import digest
from history_pipeline.archives.storage import Storage
from history_pipeline.errors import ArchiveConflictError
from sql.database import Database


@contextmanager
def files_lock(database: Database, archive: ArchiveLog[Storage]) -> Iterator[Connection]:
    """Lock the files of an archive. Yields the connection that holds the lock.

    Raises ArchiveConflictError if another one has it.
    """
    # Short, and apart from other archives of the same table.
    name = f"{archive.table}_{digest(archive.name().encode())[:8]}"
    with database.holding(name) as connection:
        if connection is None:
            raise ArchiveConflictError(
                f"{archive.where}: another compaction, expiry or erasure is under way, by "
                f"{database.holder(name)}. Nothing was done. Wait for its end.",
                path=archive.where,
            )
        yield connection
