"""The figures of a history: what an audit finds, and a report shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

import pyarrow as pa

from history_pipeline.period import EVER, Period
from queue_core.errors import SchemaMissingError

LISTED = 100
"""Gaps and faults that are listed; all are counted."""
MEASURES = ("handler", "start_latency", "lateness")
"""Measured times. Each has a column `…_micros`, and figures in seconds."""
KEYS = ("table_name", "queue_name", "class_name", "node", "hour")
GROUPINGS: dict[str, tuple[str, ...]] = {
    "total": (),
    "queue": ("table_name", "queue_name"),
    "event_type": ("table_name", "queue_name", "class_name"),
    "node": ("node",),
    "hour": ("hour",),
}
"""The `KEYS` of each grouping of `statistics`.

`total` is one group of all entries; a node and an hour group all tables together.
"""
COMPARED = ("total", "queue")
"""The groupings of `comparison`."""
STANDING_OUT = 20
"""Rows of the list of the slowest entries, and of the list of those that failed most."""
LATENESS_SECONDS = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 86_400.0)
"""Where one class of lateness ends and the next begins."""
PERCENTS = (50, 90, 95, 99)
"""The percentiles of each measured time."""
FAULTS_SCHEMA = pa.schema(
    [("table_name", pa.string()), ("record_id", pa.int64()), ("fault", pa.string())]
)


class Fault(StrEnum):
    """A state that must not occur.

    Each fault concerns an entry, named by the first id of its chain.
    """

    NO_END = "no_end"
    """Redispatched, and the copy is nowhere."""
    ENDED_TWICE = "ended_twice"
    """More than one row says PROCESSED, FAILED or REMOVED."""
    ENDED_AND_LIVE = "ended_and_live"
    """It has ended, and stands in the main table."""
    DIFFERS = "differs"
    """History and archive hold its id with different content."""


@dataclass(frozen=True)
class TableAudit:
    """One main table with its history and archive.

    Counts are None for what was not read, ids if there is no row.
    """

    table_name: str
    live: int | None
    history: int | None
    archived: int | None
    """Rows in the archive; while an archive runs, some of them are in history as well."""
    lowest_id: int | None
    highest_id: int | None
    missing_ids: int
    """Ids between those two that are in none of the three."""
    gaps: int


TABLES_SCHEMA = pa.schema(
    [
        (field.name, pa.string() if field.name == "table_name" else pa.int64())
        for field in fields(TableAudit)
    ]
)


class Figures:
    """Tables of figures by name."""

    tables: Mapping[str, pa.Table]

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table of figures.

        Args:
            name: The table's key in `tables`.

        Returns:
            Its rows by column.

        Raises:
            KeyError: There is no such table.
        """
        if name not in tuple(self.tables):
            raise KeyError(name)
        found: list[dict[str, Any]] = self.tables[name].to_pylist()
        return found


@dataclass(frozen=True)
class Audit(Figures):
    """The figures of one audit."""

    made: datetime
    database: str | None
    """sqlite, postgresql, mysql or mariadb; None if only an archive was read."""
    database_name: str | None
    """As in its URL; of an SQLite file the last part of its path."""
    archive: str | None
    audited: tuple[TableAudit, ...]
    faults: Mapping[str, int]
    """Number of faults of each `Fault`.

    A kind that can't be decided is missing: an archive alone has no live entries.
    """
    tables: Mapping[str, pa.Table]
    """Tables of figures by name, all small: see `docs/reference/statistics.md`."""
    period: Period = EVER
    """Only entries that ended in it are counted; comparison, faults, ids and gaps are of all."""
    percentile_error: float = 0.0
    """Largest relative error of a percentile; 0 if they are exact."""


class TableCounts(Protocol):
    """The rows of one table that were read. A count is None if they were not read."""

    @property
    def live_count(self) -> int | None:
        """Rows of the main table."""

    @property
    def history_count(self) -> int | None:
        """Rows of live history."""

    @property
    def archived_count(self) -> int | None:
        """Rows of the archive."""


def tellable_faults(read: Sequence[TableCounts]) -> list[Fault]:
    """Return the faults that can be decided by the tables that were read.

    Without live entries, a chain may end in one of them.
    """
    live = all(one.live_count is not None for one in read)
    both = any(one.history_count is not None and one.archived_count is not None for one in read)
    needed = {Fault.NO_END: live, Fault.ENDED_AND_LIVE: live, Fault.DIFFERS: both}
    return [fault for fault in Fault if needed.get(fault, True)]


def known_tables(
    live: Iterable[str], archived: Iterable[str], wanted: Sequence[str] | None
) -> list[str]:
    """The main tables to read: all of a database and an archive, or those `wanted`.

    Raises SchemaMissingError if one, or all, are in neither.
    """
    known = sorted({*live, *archived})
    unknown = [table for table in wanted or () if table not in known]
    if unknown or not known:
        missing = f"the table {unknown[0]!r}" if unknown else "queue tables"
        there = f"there are {', '.join(known)}" if known else "run: stickybus schema create"
        raise SchemaMissingError(
            f"neither database nor archive has {missing}: {there}. Nothing was read."
        )
    return list(wanted or known)
