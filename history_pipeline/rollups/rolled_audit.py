"""An audit without Spark: an archive by the roll-ups of its days, live history by its rows.

The main table is read before its history: an entry that moves meanwhile is seen twice rather than
never. Rows that an archive takes over while history is read are found by its new manifests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import PurePath
from typing import Any

import pyarrow as pa
from sqlalchemy import URL

from history_pipeline.archives.archive_log import archived_tables
from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.audits.confirmation import MOST_SUSPECTS, confirmed
from history_pipeline.audits.figures import (
    FAULTS_SCHEMA,
    LISTED,
    TABLES_SCHEMA,
    Audit,
    Fault,
    TableAudit,
    known_tables,
    tellable_faults,
)
from history_pipeline.audits.scope import scope_of
from history_pipeline.period import EVER, Period, compared
from history_pipeline.progress import Progress, silent
from history_pipeline.rollups.id_ranges import IdRanges
from history_pipeline.rollups.rolled_faults import KnownIds, chain_faults
from history_pipeline.rollups.rolled_figures import comparison, tables_of
from history_pipeline.rollups.rolled_tables import RolledTable, read_table
from history_pipeline.rollups.rollup import ROLLED_ENTRIES
from history_pipeline.rollups.sketch import RELATIVE_ERROR
from history_pipeline.rollups.tallies import ID_TABLES, ranges_by_table
from history_pipeline.rows.kind import ENTRIES
from queue_core.opening import open_database
from sql import schema
from sql.database import Database

_GAPS = pa.schema(
    [("table_name", pa.string())]
    + [(name, pa.int64()) for name in ("first_id", "last_id", "missing")]
)


def rolled_audit(
    *,
    url: str | URL | None = None,
    archive: str | None = None,
    tables: Sequence[str] | None = None,
    period: Period = EVER,
    progress: Progress = silent,
) -> Audit:
    """Audit the history of a database, an archive of it, or both, without Spark.

    An entry that is in both is counted once. Roll-ups of the archive's days that are missing or
    don't fit its files are made, and kept beside them; nothing else is written.

    Args:
        url: The database; None to read the archive only.
        archive: The directory of an archive; None to read the database only.
        tables: Names of main tables. The default is all of them.
        period: Entries are counted that ended in it. Faults, ids and gaps are of all entries.
            Default: any time.
        progress: Called with the name of the step, the parts done so far, and all parts.

    Returns:
        All figures, which `write_page` shows. Counts are exact, percentiles to half a percent
        (`sketch.RELATIVE_ERROR`).

    Raises:
        SchemaMissingError: A table is in neither the database nor the archive.
        ConfigurationError: An argument is not allowed, or a table is the history of tasks.
        NaiveDateTimeError: A date of the period has no time zone.
        ArchiveError: The archive can't be read.
        DatabaseUnreachableError: The database does not answer.
    """
    made = datetime.now(UTC)
    archive, tables, period = scope_of(archive, period, progress, tables)
    spans = {"period": period, **compared(period.until or made)}
    with ExitStack() as closing:
        database = None if url is None else open_database(url, application_name="stickybus-audit")
        if database is not None:
            closing.callback(database.close)
        live = () if database is None else database.fetch(schema.main_tables)
        archived = () if archive is None else archived_tables(ArrowStorage(archive), ENTRIES)
        read = [
            read_table(
                name,
                ROLLED_ENTRIES,
                database if name in live else None,
                ArrowStorage(f"{archive}/{name}") if name in archived else None,
                spans,
                progress=progress,
            )
            for name in known_tables(live, archived, tables)
        ]
        rollups = {
            span: ROLLED_ENTRIES.merged(
                (part for one in read for part in one.figures.parts(span)), ROLLED_ENTRIES.figures
            )
            for span in spans
        }
        known = {one.name: _known(one) for one in read}
        counts, faults = _faults(read, known, database)
        gaps = [*_gaps(read, known)]
        audited = tuple(_table_audit(one, known[one.name], gaps) for one in read)
        largest = sorted(gaps, key=lambda gap: (-gap["missing"], *gap.values()))[:LISTED]
        return Audit(
            made=made,
            database=None if database is None else database.dialect.name,
            database_name=None if database is None else PurePath(database.url.database or "").name,
            archive=archive,
            audited=audited,
            faults={fault.value: counts[fault] for fault in tellable_faults(read)},
            tables={
                **tables_of(rollups.pop("period")),
                "comparison": comparison(rollups),
                "gaps": pa.Table.from_pylist(largest, _GAPS),
                "faults": pa.Table.from_pylist(faults, FAULTS_SCHEMA),
                "tables": pa.Table.from_pylist([asdict(one) for one in audited], TABLES_SCHEMA),
            },
            period=period,
            percentile_error=RELATIVE_ERROR,
        )


def _known(read: RolledTable) -> KnownIds:
    """What is known of the ids of a table."""
    ids = ROLLED_ENTRIES.merged(read.ids, ID_TABLES)
    ranges = ranges_by_table(ids["ids"]).get(read.name, IdRanges.union([]))
    return KnownIds(ranges, ids["chains"], read.live)


def _judged(read: RolledTable, known: KnownIds) -> IdRanges:
    """Return the ids that can be judged.

    Below the newest id another may have been uncommitted when the tables were read.
    """
    ranges = known.ranges()
    return ranges if read.last_id is None else ranges.up_to(read.last_id)


def _gaps(read: Sequence[RolledTable], known: Mapping[str, KnownIds]) -> Iterator[dict[str, Any]]:
    for one in read:
        for first, last in _judged(one, known[one.name]).gaps():
            yield {
                "table_name": one.name,
                "first_id": first,
                "last_id": last,
                "missing": last - first + 1,
            }


def _table_audit(
    read: RolledTable, known: KnownIds, gaps: Sequence[Mapping[str, Any]]
) -> TableAudit:
    judged = _judged(read, known)
    own = [gap["missing"] for gap in gaps if gap["table_name"] == read.name]
    return TableAudit(
        table_name=read.name,
        live=read.live_count,
        history=read.history_count,
        archived=read.archived_count,
        lowest_id=int(judged.first[0]) if len(judged.first) else None,
        highest_id=int(judged.last[-1]) if len(judged.last) else None,
        missing_ids=sum(own),
        gaps=len(own),
    )


def _faults(
    read: Sequence[RolledTable], known: Mapping[str, KnownIds], database: Database | None
) -> tuple[Counter[str], list[dict[str, Any]]]:
    """Return the number of faults of each kind, and the first of them."""
    tellable = tellable_faults(read)
    rows: list[dict[str, Any]] = [
        {"fault": fault.value, "table_name": one.name, "record_id": record_id}
        for one in read
        for record_id, fault in (
            *chain_faults(known[one.name]),
            *((record_id, Fault.DIFFERS) for record_id in one.differing),
        )
        if fault in tellable
    ]
    rows.sort(key=itemgetter("fault", "table_name", "record_id"))
    if database is not None and len(rows) <= MOST_SUSPECTS:
        rows = [*confirmed(rows, database)]
    return Counter(row["fault"] for row in rows), rows[:LISTED]
