"""An audit: every figure of a history, live or archived or both.

A fault may be seen only because an entry moved while it was read. So each fault is looked up once
more before it is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import PurePath
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- as all of Spark's documents name it
from sqlalchemy import URL

from history_pipeline.audits import breakdowns
from history_pipeline.audits.completeness import chain_faults, gaps, known_ids
from history_pipeline.audits.confirmation import MOST_SUSPECTS, confirmed
from history_pipeline.audits.figures import (
    COMPARED,
    FAULTS_SCHEMA,
    GROUPINGS,
    LISTED,
    TABLES_SCHEMA,
    Audit,
    Fault,
    TableAudit,
    tellable_faults,
)
from history_pipeline.audits.scope import scope_of
from history_pipeline.audits.snapshot import Snapshot, TableSnapshot
from history_pipeline.audits.statistics import statistics
from history_pipeline.period import EVER, Period, compared
from history_pipeline.progress import Progress, silent
from history_pipeline.rows.entries import all_of, within
from history_pipeline.session import own_session
from queue_core.opening import open_database
from sql.database import Database

_ID = ("table_name", "record_id")

_COUNTED = {
    "statistics": statistics,
    "failures": breakdowns.failures,
    "retries": breakdowns.retries,
    "lateness": breakdowns.lateness,
    "redispatches": breakdowns.redispatches,
    "slowest": breakdowns.slowest,
    "most_failing": breakdowns.most_failing,
}


def audit(
    spark: SparkSession,
    *,
    url: str | URL | None = None,
    archive: str | None = None,
    tables: Sequence[str] | None = None,
    period: Period = EVER,
    progress: Progress = silent,
) -> Audit:
    """Audit the history of a database, an archive of it, or both.

    An entry that is in both is counted once. Only temporary files of Spark are written.

    Args:
        spark: A session, as `open_session` returns it.
        url: The database; None to read the archive only.
        archive: The directory of an archive; None to read the database only.
        tables: Names of main tables. The default is all of them.
        period: Entries are counted that ended in it. Faults, ids and gaps are of all entries.
            Default: any time.
        progress: Called with the name of the step, the entries done so far, and all entries; from
            any thread.

    Returns:
        All figures, which `write_page` shows.

    Raises:
        SchemaMissingError: A table is in neither the database nor the archive.
        ConfigurationError: An argument is not allowed, or a table is the history of tasks.
        NaiveDateTimeError: A date of the period has no time zone.
        ArchiveError: The archive can't be read.
        DatabaseUnreachableError: The database does not answer.
    """
    made = datetime.now(UTC)
    archive, tables, period = scope_of(archive, period, progress, tables)
    with ExitStack() as closing:
        database = None if url is None else open_database(url, application_name="stickybus-audit")
        if database is not None:
            closing.callback(database.close)
        snapshot = Snapshot(own_session(spark), database, archive, closing)
        read = [
            snapshot.read(name)
            for name in _told("reading tables", snapshot.tables(tables), progress)
        ]
        ended = all_of([one.ended for one in read])
        counted = within(ended, period)
        counts_of = {name: partial(count, counted) for name, count in _COUNTED.items()}
        counts_of["comparison"] = partial(_comparison, ended, period.until or made)
        found = {
            name: counts_of[name]().toArrow()
            for name in _told("counting", list(counts_of), progress)
        }
        missing = gaps(_ids(read)).persist()
        closing.callback(missing.unpersist)
        largest = missing.orderBy(F.desc("missing"), "table_name", "first_id").limit(LISTED)
        audited = _table_audits(read, missing)
        counts, faults = _faults(read, database)
        found |= {
            "gaps": largest.toArrow(),
            "faults": pa.Table.from_pylist(faults, FAULTS_SCHEMA),
            "tables": pa.Table.from_pylist([asdict(one) for one in audited], TABLES_SCHEMA),
        }
    return Audit(
        made=made,
        database=None if database is None else database.dialect.name,
        database_name=None if database is None else PurePath(database.url.database or "").name,
        archive=archive,
        audited=tuple(audited),
        faults={fault.value: counts[fault] for fault in tellable_faults(read)},
        tables=found,
        period=period,
    )


def _comparison(ended: DataFrame, now: datetime) -> DataFrame:
    """The statistics of yesterday and of the week before it, in all and of each queue."""
    groupings = {name: GROUPINGS[name] for name in COMPARED}
    return all_of(
        [
            statistics(within(ended, period), groupings).select(F.lit(span).alias("span"), "*")
            for span, period in compared(now).items()
        ]
    )


def _told(step: str, names: Sequence[str], progress: Progress) -> Iterator[str]:
    for done, name in enumerate(names):
        progress(step, done, len(names))
        yield name
    progress(step, len(names), len(names))


def _ids(read: Sequence[TableSnapshot]) -> DataFrame:
    """Return the ids that can be judged.

    Below the newest id another may have been uncommitted when the tables were read.
    """
    return all_of(
        [
            ids if one.last_id is None else ids.where(F.col("record_id") <= one.last_id)
            for one in read
            for ids in (one.ended.select(*_ID), one.live.select(*_ID))
        ]
    )


def _table_audits(read: Sequence[TableSnapshot], missing: DataFrame) -> list[TableAudit]:
    sums = missing.groupBy("table_name").agg(
        F.count("*").alias("gaps"), F.sum("missing").alias("missing_ids")
    )
    absent = {row["table_name"]: row for row in sums.collect()}
    bounds = {row["table_name"]: row for row in known_ids(_ids(read)).collect()}
    return [
        TableAudit(
            table_name=one.name,
            live=one.live_count,
            history=one.history_count,
            archived=one.archived_count,
            lowest_id=bounds[one.name]["lowest_id"] if one.name in bounds else None,
            highest_id=bounds[one.name]["highest_id"] if one.name in bounds else None,
            missing_ids=absent[one.name]["missing_ids"] if one.name in absent else 0,
            gaps=absent[one.name]["gaps"] if one.name in absent else 0,
        )
        for one in read
    ]


def _faults(
    read: Sequence[TableSnapshot], database: Database | None
) -> tuple[Counter[str], list[dict[str, Any]]]:
    """Return the number of faults of each kind, and the first of them."""
    ended, live = all_of([one.ended for one in read]), all_of([one.live for one in read])
    differing = all_of([one.differing for one in read]).withColumn(
        "fault", F.lit(Fault.DIFFERS.value)
    )
    tellable = [fault.value for fault in tellable_faults(read)]
    found = chain_faults(ended, live).unionByName(differing).where(F.col("fault").isin(tellable))
    first = found.orderBy("fault", "table_name", "record_id").limit(MOST_SUSPECTS + 1)
    rows = [row.asDict() for row in first.collect()]
    if len(rows) > MOST_SUSPECTS:
        return Counter(
            {row["fault"]: row["count"] for row in found.groupBy("fault").count().collect()}
        ), rows[:LISTED]
    found_again = rows if database is None else [*confirmed(rows, database)]
    return Counter(row["fault"] for row in found_again), found_again[:LISTED]
