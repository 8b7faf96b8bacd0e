"""The scope of a report: what its caller names, checked before anything is opened."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from history_pipeline.archives.place import directory
from history_pipeline.period import Period, checked
from history_pipeline.progress import Progress
from history_pipeline.rows.kind import check_entries
from queue_core.runtime.arguments import function, not_allowed


class Scope(NamedTuple):
    """What is read, and of which time.

    Attributes:
        archive: The directory of an archive; None: none is read.
        tables: Names of main tables; None: all.
        period: In UTC.
    """

    archive: str | None
    tables: list[str] | None
    period: Period


def scope_of(
    archive: str | None,
    period: Period,
    progress: Progress,
    tables: Iterable[str] | None = None,
) -> Scope:
    """What a report is about.

    Raises ConfigurationError for an argument of a wrong kind, or the history of tasks among the
    tables, and NaiveDateTimeError or InvalidPostError for a date of the period.
    """
    function(progress, key="progress", arguments=3)
    return Scope(
        archive=None if archive is None else directory(archive, key="archive"),
        tables=None if tables is None else _named(tables),
        period=checked(period),
    )


def _named(tables: Iterable[str]) -> list[str]:
    if isinstance(tables, str) or not isinstance(tables, Iterable):
        raise not_allowed("tables", tables, "a collection of names")
    names = list(tables)
    for name in names:
        check_entries(name, "this report")
    return names
