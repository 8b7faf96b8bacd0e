"""The figures of the history of tasks: what a report on them shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from history_pipeline.audits.figures import Figures
from history_pipeline.period import EVER, Period

TASK_COUNTS = ("tasks", "claims", "attempts", "with_error")
"""Tasks that ended, their claims, their attempts that failed, and those with an error."""
TASK_MEASURES = ("lifetime",)
"""Measured times, in seconds. A lifetime is the time from a task's first insert to its end."""
TASK_GROUPINGS: dict[str, tuple[str, ...]] = {
    "total": (),
    "queue": ("queue_name",),
    "error": ("queue_name", "error_type"),
    "claimant": ("claimant",),
    "hour": ("hour",),
}
"""The keys of each grouping. `error` has only tasks with an error."""


@dataclass(frozen=True)
class TaskAudit(Figures):
    """The figures of one report on tasks.

    Attributes:
        made: When it was made.
        database: sqlite, postgresql, mysql or mariadb; None if only an archive was read.
        database_name: As in its URL; of an SQLite file the last part of its path.
        archive: The directory of the archive; None if only the database was read.
        history: Rows in the database; None if it was not read.
        archived: Rows in the archive; None if it was not read. While an archive runs, some of them
            are in the database as well. They are counted once.
        differing: Record ids of tasks that are in both, and differ.
        tables: `statistics` and `comparison`: see `docs/reference/statistics.md`.
        period: Only tasks that ended in it are counted; but the comparison is of all tasks.
        percentile_error: Largest relative error of a percentile.
    """

    made: datetime
    database: str | None
    database_name: str | None
    archive: str | None
    history: int | None
    archived: int | None
    differing: tuple[int, ...]
    tables: Mapping[str, pa.Table]
    period: Period = EVER
    percentile_error: float = 0.0
