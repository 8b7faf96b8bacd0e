"""Replay: archived entries are posted again, each once.

Every replayed entry begins a new chain, and names the archived one (`replay_of`). The transaction
that posts it enters it in `queue_replays`, under the name of the archive. So no entry is posted
twice, however often a replay is killed and started again, and whatever became of the entries that
it posted. An entry that was tried again by hand counts as posted, too, if this archive or this
database knows of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from sqlalchemy import URL, Connection
from sqlalchemy import Engine as SqlalchemyEngine
from sqlalchemy.exc import IntegrityError

from history_pipeline.archives.archive import Archive
from history_pipeline.archives.manifest import Manifest, live_files
from history_pipeline.archives.place import directory
from history_pipeline.errors import ReplayError
from history_pipeline.period import DAY, Period, period_of
from history_pipeline.progress import Progress, silent
from history_pipeline.rows.kind import check_entries
from history_pipeline.session import own_session
from history_pipeline.source.data_source import read_history
from history_pipeline.upkeep.condition import chosen, counted, with_payload
from history_pipeline.upkeep.deletion import History, locked_history
from history_pipeline.upkeep.reposts import EPOCH, batches, entry, to_be_posted
from queue_core.model.config import BusConfig
from queue_core.opening import open_tables
from queue_core.runtime.arguments import function, of_kind
from sql.families import ENTRIES
from sql.tables import entry_tables

SHOWN = 10
"""Entries that a plan shows."""

_SHOWN_COLUMNS = (
    *("record_id", "queue_name", "class_name", "processing_state"),
    *("finished_date", "search_key1", "search_key2"),
)


@dataclass(frozen=True)
class Group:
    """Counts of one queue and type.

    `entries` would be posted by a replay; `replayed` were posted again before.
    """

    queue_name: str
    class_name: str
    entries: int
    replayed: int


@dataclass(frozen=True)
class Replayed:
    """The result of a replay. `first`: the first entries that it would post, without payloads.

    `posted` is 0 after a dry run. `without_payload` is the number of entries that match and can't
    be posted: their payloads were not archived, or were erased.
    """

    table: str
    target: str
    groups: list[Group] = field(default_factory=list)
    first: list[dict[str, Any]] = field(default_factory=list)
    posted: int = 0
    without_payload: int = 0

    @property
    def entries(self) -> int:
        """Number of entries that the replay would post, or should have posted."""
        return sum(group.entries for group in self.groups)

    @property
    def replayed(self) -> int:
        """Number of entries found that were posted again before."""
        return sum(group.replayed for group in self.groups)


def replay_archive(
    spark: SparkSession,
    database: str | URL | SqlalchemyEngine,
    target: str,
    *,
    where: str,
    since: datetime | None = None,
    until: datetime | None = None,
    table: str = "bus_events",
    post: bool = False,
    progress: Progress = silent,
) -> Replayed:
    """Post archived entries again that meet a condition, each once, for any node and due now.

    Payloads are copied as they are: their types need not be known here. Entries that ended REAPED
    are left out, because their copies have gone on. Entries that were posted before an error stay
    posted, and are not posted again.

    Args:
        spark: A session, as `open_session` returns it.
        database: URL or SQLAlchemy Engine of the database to post to.
        target: The directory of the archive.
        where: A condition in Spark's SQL on the columns of history, such as
            `processing_state = 'FAILED' AND search_key1 = 4711`.
        since: Only entries that ended since: an aware date. Files of earlier days are not read.
        until: Only entries that ended before: an aware date.
        table: The main table whose history was archived, and to which is posted. Default:
            `bus_events`.
        post: True to post; False only counts. Default: False.
        progress: Called with the name of the step, the entries done so far, and all entries; from
            any thread.

    Returns:
        Counts by queue and type, and the first entries.

    Raises:
        ConfigurationError: `table` is no main table, as the history of tasks, or another argument
            is not allowed.
        ReplayError: The database refused an entry, or `where` can't work (ReplayConditionError).
        ArchiveError: The archive can't be read.
        NaiveDateTimeError: A date has no time zone.
        StickybusError: The database can't be opened, or lacks the table.
    """
    check_entries(table, "a replay")
    directory(target)
    of_kind(where, str, key="where")
    function(progress, key="progress", arguments=3)
    period = period_of(since, until)
    opened = open_tables(database, BusConfig(table=table, application_name="stickybus-replay"))
    try:
        archive = Archive(own_session(spark), target, table)
        with locked_history(opened, table) as history:
            replay = _Replay(history, archive, archive.open(), where, period, progress)
            return replay.work(post=post)
    finally:
        opened.close()


@dataclass
class _Replay:
    history: History
    archive: Archive
    manifests: Sequence[Manifest]
    where: str
    period: Period
    progress: Progress

    def work(self, *, post: bool) -> Replayed:
        files = live_files(self.manifests)
        matching = chosen(self.archive.read(files, self.period), self.where)
        found = counted(matching, self.where)
        nothing = Replayed(
            self.history.table, self.archive.where, without_payload=found.without_payload
        )
        if not found.with_payload:
            return nothing
        # Replays end after their entries, but clocks differ.
        since = self.period.since and max(self.period.since, EPOCH) - DAY
        later = self.archive.read(files, Period(since))
        wanted = with_payload(matching).join(self._replayed(later), "record_id", "left")
        plan = replace(nothing, groups=_groups(wanted), first=_first(wanted))
        if not post or not plan.entries:
            return plan
        return replace(plan, posted=self._post(to_be_posted(wanted), plan.entries))

    def _replayed(self, rows: DataFrame) -> DataFrame:
        """The ids of all archived entries known to have been posted again, marked as `replayed`."""
        spark, database = self.archive.spark, self.history.database
        archives = self.history.archives
        archive = self.manifests[0].archive
        entered = database.fetch(lambda connection: archives.replayed(connection, archive))
        known = [
            spark.createDataFrame(pa.table({"record_id": pa.array(sorted(entered), pa.int64())})),
            _parents(rows),
        ]
        # In another database an id of this archive means nothing.
        deleted = self.history.deleted_runs()
        if any(one.run in deleted or one.database == self.history.name for one in self.manifests):
            tables = entry_tables(self.history.table)
            for table in (tables.main.name, tables.history.name):
                columns = ["record_id", "replay_of"]
                known.append(_parents(read_history(spark, database.url, table, columns=columns)))
        return reduce(DataFrame.union, known).distinct().withColumn("replayed", f.lit(True))

    def _post(self, rows: DataFrame, total: int) -> int:
        database, archives = self.history.database, self.history.archives
        statements = database.dialect.statements_for(ENTRIES)(entry_tables(self.history.table))
        now = self.history.now()
        archive, posted = self.manifests[0].archive, 0
        for batch in batches(rows.sort("record_id").toLocalIterator(prefetchPartitions=True)):

            def work(connection: Connection, batch: dict[int, Row] = batch) -> int:
                done = archives.replayed(connection, archive, list(batch))
                new = [entry(row, now) for record_id, row in batch.items() if record_id not in done]
                if new:
                    ids = statements.insert(connection, new)
                    parents = [row["replay_of"] for row in new]
                    archives.enter_replayed(
                        connection, archive, dict(zip(parents, ids, strict=True)), now=now
                    )
                return len(new)

            try:
                posted += database.write(work)
            except IntegrityError as error:
                raise ReplayError(
                    f"{self.history.table}: the database refused an entry of {min(batch)} to "
                    f"{max(batch)} of {self.archive.where}: {error.orig}. Of this batch nothing "
                    f"was posted; {posted} entries before it were, and are not posted again.",
                    posted=posted,
                    table=self.history.table,
                ) from error
            self.progress("posted", posted, total)
        return posted


def _parents(rows: DataFrame) -> DataFrame:
    return rows.where(f.col("replay_of").isNotNull()).select(f.col("replay_of").alias("record_id"))


def _groups(wanted: DataFrame) -> list[Group]:
    counts = wanted.groupBy("queue_name", "class_name").agg(
        f.count_if(f.col("replayed").isNull()).alias("entries"),
        f.count("replayed").alias("replayed"),
    )
    return [Group(**row.asDict()) for row in counts.sort("queue_name", "class_name").collect()]


def _first(wanted: DataFrame) -> list[dict[str, Any]]:
    shown = wanted.where(f.col("replayed").isNull()).sort("record_id").limit(SHOWN)
    columns = [f.col(name) for name in _SHOWN_COLUMNS if name != "finished_date"]
    rows = shown.select(*columns, f.unix_micros("finished_date").alias("finished_micros")).collect()
    return [
        {**facts, "finished_date": EPOCH + timedelta(microseconds=facts.pop("finished_micros"))}
        for facts in (row.asDict() for row in rows)
    ]
