"""Erasure of finished tasks in an archive."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import URL
from sqlalchemy import Engine as SqlalchemyEngine

from history_pipeline.archives.sought_tasks import SoughtTasks
from history_pipeline.upkeep.erasure import Erased, erase_sought


def erase_archived_tasks(
    target: str,
    ids: Iterable[str],
    *,
    database: str | URL | SqlalchemyEngine,
    dry_run: bool = False,
) -> Erased:
    """Erase values and error texts of finished tasks in an archive, at once.

    The rows stay, with their ids, queues, dates, claimants, claims and attempts, and of an error
    the name of its type. It needs neither Spark nor Java, only the extra `archive`. Neither live
    tasks nor the history in the database are touched.

    Args:
        target: The directory of the archive.
        ids: Ids of tasks. A task that was inserted again under its old id has a row for each end.
        database: The database that was archived, which holds the log of the archive.
        dry_run: True only tells the tasks that would be erased. Default: False.

    Returns:
        The record ids of the rows, without those that were erased before.

    Raises:
        ConfigurationError: `ids` are no texts that a task can have, or `target` is no directory.
        ArchiveNotFoundError: No tasks were archived there.
        ArchiveDamagedError: A file or manifest is missing or damaged.
        ArchiveConflictError: An archive, compaction, expiry or another erasure is under way, one
            has published meanwhile, the archive is another database's, or `archive_history` must
            finish a run first.
        ArchiveTargetError: The directory can't be reached.
        StickybusError: The database can't be opened.

    Example:
        >>> erase_archived_tasks("/var/archive", ["2f0c"], database="postgresql://user@host/name")
    """
    sought = SoughtTasks(ids=ids)
    return erase_sought(target, "work_task_history", sought, database=database, dry_run=dry_run)
