"""Batch writes: the rows of a DataFrame, posted as events exactly once per run.

A task stages its rows under (run, job, partition, attempt), so that an attempt that is tried again,
or runs beside another, leaves rows that nobody takes. When all tasks have ended, one transaction
enters the run and its partitions in a ledger and posts what the attempts that Spark counts have
staged; the numbers of rows must agree at each step. A run that is in the ledger is not posted
again, whatever happened to the job that posted it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from history_pipeline.errors import RunConflictError, WriteError
from history_pipeline.source.options import WriteOptions
from history_pipeline.source.postings import check_columns, posting
from history_pipeline.source.reader import table_of
from queue_core.model.lanes import ANY_NODE
from sql.database import Database
from sql.families import STAGING
from sql.statements.staging import Staging
from sql.watching import Hint

OWNER = "spark"
"""`creating_owner` of the posted rows."""
ROWS_PER_TRANSACTION = 1_000
"""Rows that one transaction stages."""
COMMIT_SECONDS = 3600.0
"""Time limit of the statements that post a whole run."""
STALE = timedelta(days=7)
"""Rows that were staged longer ago belong to a job that died."""


@dataclass
class Staged(WriterCommitMessage):
    """The rows that one attempt has staged."""

    part: int
    attempt: str
    rows: int


class EventWriter(DataSourceArrowWriter):
    """Posts the rows of one `save()`.

    Tasks and the end of the job run in other processes.
    """

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        check_columns(schema, options)
        self.options = options
        self.job = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one partition. Raises WriteError for the first that can't be posted."""
        context = TaskContext.get()
        part = 0 if context is None else context.partitionId()
        attempt, place = uuid4().hex, 0
        rows = (posting(row, self.options) for batch in iterator for row in batch.to_pylist())
        database = Database(self.options.url)
        staging = _staging(database)
        try:
            while chunk := list(islice(rows, ROWS_PER_TRANSACTION)):
                key = {"run": self.options.run, "job": self.job, "part": part, "attempt": attempt}
                common = {**key, "staged_date": datetime.now(UTC)}
                staged = [
                    {**common, **row, "place": place + offset} for offset, row in enumerate(chunk)
                ]
                database.write(partial(staging.stage, rows=staged))
                place += len(chunk)
        finally:
            database.close()
        return Staged(part, attempt, place)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Post what was staged, unless the run has been posted before.

        Raises RunConflictError if it had posted another number of rows then, or into another table,
        and WriteError if rows are missing; nothing is posted then.
        """
        winners = [message for message in messages if isinstance(message, Staged)]
        database = Database(self.options.url, statement_timeout_seconds=COMMIT_SECONDS)
        try:
            if len(winners) != len(messages):
                raise WriteError(
                    f"{len(messages) - len(winners)} partitions of run {self.options.run!r} are "
                    "missing"
                )
            try:
                database.write(lambda connection: self._post(connection, database, winners))
            except IntegrityError:
                # Another job has posted the run at the same moment: then this finds it.
                database.write(lambda connection: self._post(connection, database, winners))
        finally:
            database.close()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the rows that this job has staged.

        Posted rows stay posted, also if only the answer to the COMMIT was lost.
        """
        del messages
        run, job = self.options.run, self.job
        database = Database(self.options.url)
        staging = _staging(database)
        try:
            database.write(lambda connection: staging.drop_staged(connection, run=run, job=job))
        finally:
            database.close()

    def _post(self, connection: Connection, database: Database, winners: Sequence[Staged]) -> None:
        run, table, staging = self.options.run, self.options.table, _staging(database)
        total = sum(message.rows for message in winners)
        now = database.dialect.database_now(connection)
        before = staging.entered(connection, run)
        if before is None:
            if winners:
                # First, for it waits for a job that posts the same run at this moment and will take
                # its staged rows.
                entries = {message.part: message.rows for message in winners}
                staging.enter(connection, run=run, table_name=table, entries=entries, now=now)
            self._check_staged(
                winners, staging.staged_by_attempt(connection, run=run, job=self.job)
            )
            posted = staging.post_staged(
                connection,
                table_of(table),
                run=run,
                job=self.job,
                attempts=[message.attempt for message in winners],
                owner=OWNER,
                lane=ANY_NODE,
                now=now,
            )
            if posted != total:
                raise WriteError(
                    f"run {run!r} would have posted {posted} of {total} rows. Nothing was posted."
                )
            database.dialect.notify(connection, Hint(f"stickybus_{table}", ANY_NODE))
        elif before != (table, total):
            raise RunConflictError(
                f"run {run!r} has posted {before[1]} entries into {before[0]}, and has {total} for "
                f"{table} now. Nothing was posted now; give other rows another run.",
                run=run,
                table=table,
            )
        staging.drop_staged(connection, run=run)
        staging.drop_staged_before(connection, now - STALE)

    def _check_staged(self, winners: Sequence[Staged], found: Mapping[str, int]) -> None:
        """Raises WriteError unless each attempt has staged as many rows as its task says."""
        wrong = [message for message in winners if found.get(message.attempt, 0) != message.rows]
        if wrong:
            first = wrong[0]
            raise WriteError(
                f"{len(wrong)} partitions of run {self.options.run!r} are not staged as their "
                f"tasks say: partition {first.part} has {found.get(first.attempt, 0)} rows, not "
                f"{first.rows}. Nothing was posted."
            )


def _staging(database: Database) -> Staging:
    return database.dialect.statements_for(STAGING)()
