"""An audit: every figure of a history, live or archived or both.

A fault may be seen only because an entry moved while it was read. So each fault is looked up once
more before it is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import PurePath
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- as all of Spark's documents name it
from sqlalchemy import URL, ColumnElement, Connection, Table, func, or_, select

from history_pipeline import breakdowns
from history_pipeline.completeness import Fault, chain_faults, gaps, known_ids
from history_pipeline.progress import Progress, silent
from history_pipeline.session import own_session
from history_pipeline.snapshot import Snapshot, TableSnapshot
from history_pipeline.statistics import statistics
from history_pipeline.transforms import all_of
from queue_core.model.states import State
from sql.database import Database
from sql.tables import entry_tables

SHOWN = 100
"""Gaps and faults that are listed; all are counted."""
MOST_SUSPECTS = 10_000
"""Faults that are looked up once more. A larger number is not caused by moving entries."""
_BATCH = 500
_ID = ("table_name", "record_id")
FAULTS_SCHEMA = pa.schema(
    [("table_name", pa.string()), ("record_id", pa.int64()), ("fault", pa.string())]
)

_COUNTED = {
    "statistics": statistics,
    "failures": breakdowns.failures,
    "retries": breakdowns.retries,
    "lateness": breakdowns.lateness,
    "redispatches": breakdowns.redispatches,
    "slowest": breakdowns.slowest,
    "most_failing": breakdowns.most_failing,
}


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


@dataclass(frozen=True)
class Audit:
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

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of one of `tables`."""
        found: list[dict[str, Any]] = self.tables[name].to_pylist()
        return found


def audit(
    spark: SparkSession,
    *,
    url: str | URL | None = None,
    archive: str | None = None,
    tables: Sequence[str] | None = None,
    progress: Progress = silent,
) -> Audit:
    """Audit the history of a database, an archive of it, or both.

    An entry that is in both is counted once. Only temporary files of Spark are written.

    Args:
        spark: A session, as `open_session` returns it.
        url: The database; None to read the archive only.
        archive: The directory of an archive; None to read the database only.
        tables: Names of main tables. The default is all of them.
        progress: Called with the name of the step, the entries done so far, and all entries; from
            any thread.

    Returns:
        All figures, which `history_pipeline.report` shows.

    Raises:
        SchemaMissingError: A table is in neither the database nor the archive.
        ArchiveError: The archive can't be read.
    """
    made = datetime.now(UTC)
    spark = own_session(spark)
    with ExitStack() as closing:
        database = None if url is None else Database(url, application_name="stickybus-audit")
        if database is not None:
            closing.callback(database.close)
        snapshot = Snapshot(spark, database, archive, closing)
        read = [
            snapshot.read(name)
            for name in _told("reading tables", snapshot.tables(tables), progress)
        ]
        ended = all_of([one.ended for one in read])
        found = {
            name: _COUNTED[name](ended).toArrow()
            for name in _told("counting", list(_COUNTED), progress)
        }
        missing = gaps(_ids(read)).persist()
        closing.callback(missing.unpersist)
        largest = missing.orderBy(F.desc("missing"), "table_name", "first_id").limit(SHOWN)
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
        faults={fault.value: counts[fault] for fault in _tellable(read)},
        tables=found,
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


def _tellable(read: Sequence[TableSnapshot]) -> list[Fault]:
    """Return the faults that can be decided by the tables that were read.

    Without live entries, a chain may end in one of them.
    """
    live = all(one.live_count is not None for one in read)
    both = any(one.history_count is not None and one.archived_count is not None for one in read)
    needed = {Fault.NO_END: live, Fault.ENDED_AND_LIVE: live, Fault.DIFFERS: both}
    return [fault for fault in Fault if needed.get(fault, True)]


def _faults(
    read: Sequence[TableSnapshot], database: Database | None
) -> tuple[Counter[str], list[dict[str, Any]]]:
    """Return the number of faults of each kind, and the first of them."""
    ended, live = all_of([one.ended for one in read]), all_of([one.live for one in read])
    differing = all_of([one.differing for one in read]).withColumn(
        "fault", F.lit(Fault.DIFFERS.value)
    )
    tellable = [fault.value for fault in _tellable(read)]
    found = chain_faults(ended, live).unionByName(differing).where(F.col("fault").isin(tellable))
    first = found.orderBy("fault", "table_name", "record_id").limit(MOST_SUSPECTS + 1)
    rows = [row.asDict() for row in first.collect()]
    if len(rows) > MOST_SUSPECTS:
        return Counter(
            {row["fault"]: row["count"] for row in found.groupBy("fault").count().collect()}
        ), rows[:SHOWN]
    confirmed = rows if database is None else [*_confirmed(rows, database)]
    return Counter(row["fault"] for row in confirmed), confirmed[:SHOWN]


def _confirmed(faults: Iterable[dict[str, Any]], database: Database) -> Iterator[dict[str, Any]]:
    """Return the faults that are still there.

    An entry may have moved between the reading of one table and the next.
    """
    for (table, fault), group in groupby(faults, key=itemgetter("table_name", "fault")):
        rows = list(group)
        ids = [row["record_id"] for row in rows]
        look = _LOOKS.get(fault)
        batches = range(0, len(ids), _BATCH) if look else ()
        gone = set[int]().union(
            *(look(database, table, ids[start : start + _BATCH]) for start in batches if look)
        )
        yield from (row for row in rows if row["record_id"] not in gone)


def _live_chains(database: Database, table: str, chains: Sequence[int]) -> set[int]:
    return database.fetch(partial(_chains_in, table=entry_tables(table).main, chains=chains))


def _not_live(database: Database, table: str, chains: Sequence[int]) -> set[int]:
    return set(chains) - _live_chains(database, table, chains)


def _with_end(database: Database, table: str, chains: Sequence[int]) -> set[int]:
    # In this order: what leaves the main table between the two looks is in history by the second.
    live = _live_chains(database, table, chains)
    history = entry_tables(table).history
    ended = partial(
        _chains_in, table=history, chains=chains, where=[history.c.processing_state != State.REAPED]
    )
    return live | database.fetch(ended)


def _chains_in(
    connection: Connection,
    *,
    table: Table,
    chains: Sequence[int],
    where: Sequence[ColumnElement[bool]] = (),
) -> set[int]:
    """Return the members of `chains` that have a row in the table."""
    chain = func.coalesce(table.c.origin_id, table.c.record_id)
    links = or_(table.c.origin_id.in_(chains), table.c.record_id.in_(chains))
    return set(connection.execute(select(chain).where(links, *where)).scalars())


_LOOKS: Mapping[str, Callable[[Database, str, Sequence[int]], set[int]]] = {
    Fault.NO_END: _with_end,
    Fault.ENDED_AND_LIVE: _not_live,
}
"""Functions that return the chains which no longer have a fault.

They are keyed by each fault that a moving entry can look like.
"""
