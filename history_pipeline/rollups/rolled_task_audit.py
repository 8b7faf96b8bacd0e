"""An audit of tasks, without Spark: an archive by the roll-ups of its days, and live history."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import PurePath

from sqlalchemy import URL

from history_pipeline.archives.archive_log import archived_tables
from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.audits.scope import scope_of
from history_pipeline.audits.task_figures import TaskAudit
from history_pipeline.period import EVER, Period, compared
from history_pipeline.progress import Progress, silent
from history_pipeline.rollups.group_statistics import comparison_of
from history_pipeline.rollups.rolled_tables import read_table
from history_pipeline.rollups.sketch import RELATIVE_ERROR
from history_pipeline.rollups.task_rollup import (
    ROLLED_TASKS,
    compared_statistics,
    task_statistics,
)
from history_pipeline.rows.kind import TASKS
from queue_core.errors import ConfigurationError
from queue_core.opening import open_checked


def rolled_task_audit(
    *,
    url: str | URL | None = None,
    archive: str | None = None,
    period: Period = EVER,
    progress: Progress = silent,
) -> TaskAudit:
    """Count the finished tasks of a work queue: in a database, in an archive of it, or both.

    A task that is in both is counted once. Roll-ups of the archive's days that are missing or don't
    fit its files are made, and kept beside them; nothing else is written.

    Args:
        url: The database; None to read the archive only.
        archive: The directory of an archive; None to read the database only.
        period: Tasks are counted that ended in it. Default: any time.
        progress: Called with the name of the step, the parts done so far, and all parts.

    Returns:
        All figures, which `write_page` shows. Counts are exact, percentiles to half a percent
        (`sketch.RELATIVE_ERROR`).

    Raises:
        ConfigurationError: An argument is not allowed, or neither a database nor an archive was
            named.
        NaiveDateTimeError: A date of the period has no time zone.
        ArchiveNotFoundError: The directory holds no archive of tasks.
        ArchiveError: The archive can't be read.
        StickybusError: The database can't be opened.

    Example:
        >>> write_page(rolled_task_audit(url="sqlite:///shop.db"), Path("tasks.html"))
    """
    made, name = datetime.now(UTC), TASKS.archive_name("")
    archive, _tables, period = scope_of(archive, period, progress)
    spans = {"period": period, **compared(period.until or made)}
    if url is None and archive is None:
        raise ConfigurationError(
            "neither a database nor an archive was named, so no task can be counted. Give url=, "
            "archive= or both.",
            key="url",
        )
    if archive is not None:
        archived_tables(ArrowStorage(archive), TASKS)
    with ExitStack() as closing:
        database = None
        if url is not None:
            database = open_checked(url, (), auto_migrate=False, application_name="stickybus-audit")
            closing.callback(database.close)
        storage = None if archive is None else ArrowStorage(f"{archive}/{name}")
        read = read_table(name, ROLLED_TASKS, database, storage, spans, progress=progress)
        rollups = {
            span: ROLLED_TASKS.merged(read.figures.parts(span), ROLLED_TASKS.figures)
            for span in spans
        }
        return TaskAudit(
            made=made,
            database=None if database is None else database.dialect.name,
            database_name=None if database is None else PurePath(database.url.database or "").name,
            archive=archive,
            history=read.history_count,
            archived=read.archived_count,
            differing=tuple(read.differing),
            tables={
                "statistics": task_statistics(rollups.pop("period")),
                "comparison": comparison_of(rollups, compared_statistics),
            },
            period=period,
            percentile_error=RELATIVE_ERROR,
        )
