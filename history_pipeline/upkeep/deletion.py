"""Deletion of archived rows from history: exactly these, in one transaction, or none.

The transaction runs on the connection that holds the lock of the history: if the lock is lost with
its connection, nothing is deleted. The transaction also says so in `queue_archives`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from sqlalchemy import Connection

from history_pipeline.archives.archive import Archive
from history_pipeline.archives.manifest import Manifest, live_files
from history_pipeline.errors import ArchiveConflictError, ArchiveMismatchError
from history_pipeline.rows.hashes import row_hash
from history_pipeline.rows.kind import HistoryKind, kind_of
from history_pipeline.rows.omission import omitted
from history_pipeline.scale import DEFAULT_SCALE, Scale
from history_pipeline.source.data_source import read_history
from history_pipeline.upkeep.history_lock import history_lock
from history_pipeline.upkeep.publication import logged_of
from sql.database import Database
from sql.families import ARCHIVES
from sql.statements.archives import Archives
from sql.statements.ranges import Ranges

DELETE_ROWS = 20_000
"""Entries that one statement deletes.

A transaction has many such statements, because a server limits statements.
"""
IDS = 2_000
"""Ids that one statement names, where entries are looked up one by one."""
NAMED = 10
"""Entries that an error names."""

Told = Callable[[int], None]
"""Called with the number of entries deleted so far."""


@dataclass(frozen=True)
class History:
    """The history of one table, locked: `connection` holds the lock."""

    database: Database
    connection: Connection
    table: str

    @property
    def kind(self) -> HistoryKind:
        """The kind of its rows."""
        return kind_of(self.table)

    @property
    def statements(self) -> Ranges:
        """The statements on the table."""
        return self.kind.statements(self.database.dialect, self.table)

    @property
    def archives(self) -> Archives:
        """The statements on rows that were archived and deleted, or posted again."""
        return self.database.dialect.statements_for(ARCHIVES)()

    @property
    def name(self) -> str:
        """The database as manifests name it, without user and password.

        An SQLite file has its whole path.
        """
        return self.database.dialect.path_name(self.database.url) or self.database.key

    def now(self) -> datetime:
        """The database's clock, in UTC."""
        return self.database.fetch(self.database.dialect.database_now)

    def count(self, before: datetime) -> int:
        """Return the number of rows that ended before a date."""
        statements = self.statements
        return self.database.fetch(
            lambda connection: statements.count_history(connection, before=before)
        )

    def closed_range(self, before: datetime, limit: int) -> tuple[int, int] | None:
        """Return the first and last of the `limit` lowest ids of rows that ended before a date.

        None if there are no such rows.
        """
        statements = self.statements
        return self.database.fetch(
            lambda connection: statements.closed_range(connection, before=before, limit=limit)
        )

    def deleted_runs(self) -> set[str]:
        """The runs whose rows are deleted."""
        archives = self.archives
        return self.database.fetch(lambda connection: archives.deleted_runs(connection, self.table))

    def rows(self, archive: Archive, manifest: Manifest, scale: Scale = DEFAULT_SCALE) -> DataFrame:
        """Return the rows in the closed range of a run."""
        url = self.database.url
        rows = read_history(
            archive.spark,
            url,
            self.kind.history(self.table).name,
            first_id=manifest.first_id,
            last_id=manifest.last_id,
            ids_per_partition=scale.ids_per_partition,
            max_partitions=scale.max_partitions,
        )
        return rows.where(f.col("finished_date") < f.lit(manifest.before))


@contextmanager
def locked_history(database: Database, table: str) -> Iterator[History]:
    """Lock a history against others that archive, replay, erase or truncate it.

    Raises ArchiveConflictError if one does.
    """
    with history_lock(database, table) as connection:
        yield History(database, connection, table)


def delete_run(history: History, archive: Archive, manifest: Manifest, told: Told) -> None:
    """Delete the rows of a run that was published just now: its whole closed range.

    Raises ArchiveMismatchError if they are not those that were archived, id by id; nothing is
    deleted then.
    """
    extent = archive.extent(manifest.files)
    try:
        with history.database.begin(history.connection) as connection:
            _delete_range(history, connection, manifest, extent.ids, told)
            history.archives.enter_deleted(
                connection,
                manifest.run,
                entries=manifest.fingerprint.rows,
                newest_date=extent.newest,
                now=history.now(),
            )
    except _OtherRowsError as error:
        found = compared(history, archive, manifest)
        raise ArchiveMismatchError(
            f"{history.table}: {error.rows} rows of history would be deleted, but the "
            f"{manifest.fingerprint.rows} rows that run {manifest.run} archived differ. Not "
            f"archived: {_named(found.late)}. Nothing was deleted, and the archived rows stay. "
            "Start it again: it deletes the archived rows, one by one, and archives the others.",
            run=manifest.run,
            archived=manifest.fingerprint.rows,
            found=error.rows,
            path=archive.where,
        ) from None


def finish_run(history: History, archive: Archive, manifest: Manifest, *, logged: bool) -> int:
    """Delete the rows that a killed run has archived and not deleted, and return their number.

    A run that is not `logged` is entered in the log in the same transaction. By now history may
    hold fewer rows, or more, which stay.

    Raises ArchiveConflictError if it is another history than the archived one, and
    ArchiveMismatchError if rows vanish meanwhile. Nothing is deleted then.
    """
    found = compared(history, archive, manifest)
    moved = manifest.database != history.name and len(found.archived) < manifest.fingerprint.rows
    if found.foreign or moved:
        shown = (
            f" Other content than in the archive has {_named(found.foreign)}."
            if found.foreign
            else ""
        )
        raise ArchiveConflictError(
            f"{archive.where} is the archive of {manifest.database}: {history.name} neither "
            f"deleted the run {manifest.run} nor holds its {manifest.fingerprint.rows} "
            f"rows.{shown} Nothing was archived or deleted. Name another directory for this "
            "database.",
            path=archive.where,
        )
    newest = archive.extent(manifest.files).newest
    with history.database.begin(history.connection) as connection:
        deleted = sum(
            history.statements.delete_history(
                connection,
                ids=found.archived[start : start + IDS],
                before=manifest.before,
            )
            for start in range(0, len(found.archived), IDS)
        )
        if deleted != len(found.archived):
            raise ArchiveMismatchError(
                f"{history.table}: {len(found.archived)} rows of history are in run {manifest.run} "
                f"of the archive, {deleted} would be deleted. Nothing was deleted. Start it "
                "again.",
                run=manifest.run,
                archived=len(found.archived),
                found=deleted,
                path=archive.where,
            )
        if not logged:
            content = archive.storage.read(manifest.path)
            history.archives.adopt(connection, logged_of(archive, manifest, content, history.now()))
        history.archives.enter_deleted(
            connection, manifest.run, entries=deleted, newest_date=newest, now=history.now()
        )
    return deleted


@dataclass(frozen=True)
class Comparison:
    """Ids of the rows in the closed range of a run, ascending, by what the archive holds of them.

    `archived`: the same row. `late`: nothing, they were committed after the run had read.
    `foreign`: another row of the same id, though ids are never reused.
    """

    archived: list[int]
    late: list[int]
    foreign: list[int]


def compared(history: History, archive: Archive, manifest: Manifest) -> Comparison:
    """Look each row of the closed range of a run up in the archive."""
    near = [
        file
        for file in live_files(archive.manifests())
        if file.first_id <= manifest.last_id and file.last_id >= manifest.first_id
    ]
    hashed = row_hash(manifest.hashed)
    stored = archive.read(near).select("record_id", hashed.alias("stored"))
    rows = omitted(history.rows(archive, manifest), history.kind, manifest.without)
    present = rows.select("record_id", hashed.alias("present"))
    same = f.max(f.col("stored") == f.col("present"))
    found = (
        present.join(stored, "record_id", "left")
        .groupBy("record_id", "present")
        .agg(same.alias("same"))
    )
    table = found.select("record_id", "same").sort("record_id").toArrow()
    ids, same_ones = table["record_id"].to_pylist(), table["same"].to_pylist()
    kinds: dict[bool | None, list[int]] = {True: [], False: [], None: []}
    for record_id, kind in zip(ids, same_ones, strict=True):
        kinds[kind].append(record_id)
    return Comparison(archived=kinds[True], late=kinds[None], foreign=kinds[False])


def _delete_range(
    history: History, connection: Connection, manifest: Manifest, ids: pa.ChunkedArray, told: Told
) -> None:
    """Delete the closed range of a run. Raises _OtherRowsError unless its ids are the given ones.

    The ids are compared one by one: other rows may agree in their number and the sum of their ids.
    """
    deleted, locked, same, first_id = 0, 0, True, manifest.first_id
    while first_id <= manifest.last_id:
        last_id = history.statements.range_page(
            connection, first_id=first_id, last_id=manifest.last_id, limit=DELETE_ROWS
        )
        page: dict[str, Any] = {
            "first_id": first_id,
            "last_id": last_id,
            "before": manifest.before,
        }
        # Locked: else a row could vanish, and another appear, between the look and the deletion.
        # One that appears nevertheless is deleted besides the locked ones, and counted.
        found = sorted(history.statements.locked_range(connection, **page))
        same = same and found == ids.slice(locked, len(found)).to_pylist()
        locked += len(found)
        deleted += history.statements.delete_range(connection, **page)
        told(deleted)
        first_id = last_id + 1
    if not same or {deleted, locked, len(ids)} != {manifest.fingerprint.rows}:
        raise _OtherRowsError(deleted)


def _named(ids: Sequence[int]) -> str:
    """Return a text with some of the ids, and the number of the others."""
    shown = ", ".join(str(one) for one in ids[:NAMED]) or "none"
    more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
    return f"entries {shown}{more}" if ids else "no entry"


class _OtherRowsError(Exception):
    """Rolls back a deletion of other rows than the archived ones."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows
