"""Lookups of finished tasks in an archive, without Spark and without a database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.archives.bundles import bundled_manifests
from history_pipeline.archives.manifest import DataFile, live_files
from history_pipeline.archives.parquet_files import parquet_file
from history_pipeline.archives.place import folder
from history_pipeline.archives.search import Search
from history_pipeline.archives.sought_tasks import SoughtTasks
from history_pipeline.period import Period
from history_pipeline.rows.kind import TASKS
from history_pipeline.rows.parts import Part
from queue_core.runtime.clock import in_utc
from queue_core.storage.arguments import storable_integer

_TABLE = "work_task_history"


class ArchivedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A finished task of an archive: the columns of `work_task_history`, by their names.

    Attributes:
        value_json: The value as JSON. It is None as well if the value is None, or bytes, or was not
            read.
        value_bytes: The value, if it is bytes.
        not_archived: What the run has left out that archived the task. A task without value, or
            without error, may have had none.
    """

    record_id: int
    task_id: str
    queue: str
    version: int
    claims: int
    attempt: int
    created_date: datetime
    modified_date: datetime
    finished_date: datetime
    finished_by: str
    err: str | None = None
    value_json: str | None = None
    value_bytes: bytes | None = None
    not_archived: tuple[Part, ...] = ()


def find_archived_tasks(
    target: str,
    queue: str | None = None,
    *,
    ids: Iterable[str] | None = None,
    since: datetime | None = None,
    before: datetime | None = None,
    limit: int | None = None,
    with_values: bool = True,
) -> list[ArchivedTask]:
    """Find archived tasks, as `WorkQueue.finished_tasks` finds those of a database.

    It needs neither Spark nor Java, only the extra `archive`.

    Args:
        target: The directory of the archive.
        queue: Only of this queue. Default: of all.
        ids: Only tasks with these ids.
        since: Only tasks that ended since: an aware date. Files of days before are not read.
        before: Only tasks that ended before, likewise.
        limit: How many at most; 0 or less: no limit. Default: no limit.
        with_values: False leaves values out, and does not read them. Default: True.

    Returns:
        The tasks that match all that is given, the last that ended first.

    Raises:
        ConfigurationError: `queue` or `ids` are no texts that a task can have, or `target` is no
            directory.
        InvalidPostError: `limit` is no whole number.
        NaiveDateTimeError: A date has no time zone.
        ArchiveNotFoundError: No tasks were archived there.
        ArchiveDamagedError: A file or manifest is missing or damaged.
        ArchiveTargetError: The directory can't be reached.

    Example:
        >>> find_archived_tasks("/var/archive", "mail", limit=10)
    """
    most = None if limit is None or storable_integer(limit, "limit") <= 0 else limit
    period = Period(
        None if since is None else in_utc(since, key="since"),
        None if before is None else in_utc(before, key="before"),
    )
    sought = SoughtTasks(queue, ids, period)
    names = [name for name in TASKS.names if with_values or name not in TASKS.payload]
    storage = ArrowStorage(folder(target, _TABLE))
    manifests = bundled_manifests(ArchiveLog(storage, _TABLE))
    files = [file for file in live_files(manifests) if sought.may_be_in(file)]
    found = list[ArchivedTask]()
    for file in sorted(files, key=lambda file: file.event_date, reverse=True):
        if len(found) == most and all(file.event_date < _day(one) for one in found[-1:]):
            break
        found += _of_file(storage, file, sought.search, names, most)
        found = sorted(found, key=_order, reverse=True)[:most]
    return found


def _of_file(
    storage: ArrowStorage, file: DataFile, search: Search, names: list[str], limit: int | None
) -> Iterator[ArchivedTask]:
    with parquet_file(storage, file) as parquet:
        for values in search.rows(parquet, names, limit):
            task = ArchivedTask(**dict(zip(names, values, strict=True)))
            yield msgspec.structs.replace(task, not_archived=_lacking(task, file))


def _lacking(task: ArchivedTask, file: DataFile) -> tuple[Part, ...]:
    """The parts that the task lacks, of those that its file is without."""
    has = {
        Part.PAYLOAD: task.value_json is not None or task.value_bytes is not None,
        # The message follows the type after a space.
        Part.ERRORS: len((task.err or "").split(maxsplit=1)) > 1,
    }
    return tuple(part for part in file.without if not has[part])


def _order(task: ArchivedTask) -> tuple[datetime, int]:
    return task.finished_date, task.record_id


def _day(task: ArchivedTask) -> str:
    return task.finished_date.astimezone(UTC).date().isoformat()
