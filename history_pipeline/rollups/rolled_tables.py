"""One history with its archive and its main table, read for a report by roll-ups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from itertools import groupby
from operator import attrgetter

import pyarrow as pa
from pyarrow import compute
from sqlalchemy import Table

from history_pipeline.archives.agreement import check_agreement
from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.archives.manifest import DataFile, Kind, Manifest, live_files
from history_pipeline.archives.parquet_files import read_rows
from history_pipeline.period import DAY
from history_pipeline.progress import Progress
from history_pipeline.rollups.gathered import Gathered, Spans
from history_pipeline.rollups.id_ranges import IdRanges
from history_pipeline.rollups.kept_rollups import KeptRollups, rolled_files
from history_pipeline.rollups.rolling import Rolling
from history_pipeline.rollups.tallies import ID_TABLES, Rollup, ranges_by_table
from history_pipeline.rows.arrow_entries import without_messages
from history_pipeline.source.id_bounds import id_bounds, last_id
from history_pipeline.source.pages import pages
from sql.database import Database
from sql.tables import entry_tables

_ROLLED_ROWS = 250_000
"""Rows of live history in memory at once."""
_LIVE = pa.schema([("record_id", pa.int64()), ("chain_id", pa.int64())])
_LIVE_SCHEMA = pa.schema([("record_id", pa.int64()), ("origin_id", pa.int64())])


@dataclass
class RolledTable:
    """What was read of one table. A count is None if its place was not read."""

    name: str
    rolling: Rolling
    figures: Gathered
    ids: list[Rollup] = field(default_factory=list)
    """Roll-ups with the ids and chains of all that has ended."""
    live: pa.Table = field(default_factory=_LIVE.empty_table)
    differing: list[int] = field(default_factory=list)
    """Ids that are in live history and in the archive with different content."""
    last_id: int | None = None
    """The largest id when the reading began; None if the database was not read."""
    live_count: int | None = None
    history_count: int | None = None
    archived_count: int | None = None

    def add(self, rows: pa.Table) -> None:
        """Add prepared rows."""
        self.ids.append(self.rolling.ids_of(rows))
        self.figures.add_rows(rows)

    def ids_by_range(self) -> IdRanges:
        """All ids that have ended, so far as they were read."""
        ids = self.rolling.merged(self.ids, ID_TABLES)
        unlinked = ranges_by_table(ids["ids"]).get(self.name, IdRanges.union([]))
        return IdRanges.union([unlinked, IdRanges.of(ids["chains"]["record_id"].to_numpy())])


def read_table(
    name: str,
    rolling: Rolling,
    database: Database | None,
    archive: ArrowStorage | None,
    spans: Spans,
    *,
    progress: Progress,
) -> RolledTable:
    """Read one table of a database, of an archive, or of both.

    First what the archive holds by now, then the live entries, then history, and at last what the
    archive has taken over meanwhile.
    """
    found = RolledTable(name, rolling, Gathered(rolling, spans))
    log = None if archive is None else ArchiveLog(archive, name)
    manifests = list[Manifest]()
    if log is not None:
        manifests = log.open() if database is None else check_agreement(log, database)
    files = live_files(manifests)
    if database is not None:
        tables = _tables(rolling, name)
        found.last_id = database.fetch(lambda connection: last_id(connection, tables))
        found.last_id = max(found.last_id, *(file.last_id for file in files), 0)
    if log is not None:
        _read_days(found, log.storage, files, spans, progress)
    if database is None:
        return found
    archived = found.ids_by_range()
    if rolling.kind.shared is None:
        found.live = _live(database, name)
        found.live_count = len(found.live)
    doubtful = _read_history(found, database, archived, progress)
    if log is not None:
        if len(doubtful):
            copies = _copies(log.storage, rolling, files, doubtful["record_id"])
            found.differing = _differing(rolling, doubtful, copies)
            key = ["record_id", "finished_date"]
            doubtful = doubtful.join(copies.select(key), key, join_type="left anti")
        _read_new(found, log, manifests)
    found.add(rolling.prepared(doubtful.select(rolling.columns.names), name))
    return found


def _read_days(
    found: RolledTable,
    storage: ArrowStorage,
    files: Sequence[DataFile],
    spans: Spans,
    progress: Progress,
) -> None:
    """Add what an archive holds, day by day."""
    kept = KeptRollups(storage, found.name, found.rolling)
    by_date = attrgetter("event_date")
    days = [(day, [*of]) for day, of in groupby(sorted(files, key=by_date), key=by_date)]
    found.archived_count = sum(file.fingerprint.rows for file in files)
    for done, (day, of_day) in enumerate(days):
        progress(f"{found.name}: days of the archive", done, len(days))
        rollup = kept.of_day(day, of_day)
        found.ids.append({name: rollup[name] for name in ID_TABLES})
        for span, period in spans.items():
            start = datetime.fromisoformat(day).replace(tzinfo=UTC)
            begun = period.since is None or start >= period.since
            over = period.until is None or period.until - start >= DAY
            if begun and over:
                found.figures.add(rollup, [span])
            elif period.meets(day):
                part = rolled_files(storage, found.name, found.rolling, of_day, period)
                found.figures.add(part, [span])
    progress(f"{found.name}: days of the archive", len(days), len(days))


def _read_history(
    found: RolledTable,
    database: Database,
    archived: IdRanges,
    progress: Progress,
) -> pa.Table:
    """Add live history. Returns the rows whose ids are archived as well, which were not added."""
    rolling = found.rolling
    table = rolling.kind.history(found.name)
    first, last = database.fetch(lambda connection: id_bounds(connection, table))
    step = f"{found.name}: rows of history"
    doubtful, found.history_count = [rolling.columns.empty_table()], 0
    batches = pages(database, table, rolling.columns, first_id=first, last_id=last)
    for rows in _gathered(batches):
        found.history_count += len(rows)
        ids = rows["record_id"].to_numpy()
        twice = pa.array(archived.rows_of(ids) > 0)
        doubtful.append(rows.filter(twice))
        found.add(rolling.prepared(rows.filter(compute.invert(twice)), found.name))
        progress(step, int(ids[-1]) - first + 1, last - first + 1)
    return pa.concat_tables(doubtful)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of many rows: the smaller they are, the more of them have to be merged."""
    waiting, rows = list[pa.RecordBatch](), 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _ROLLED_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _read_new(
    found: RolledTable,
    log: ArchiveLog[ArrowStorage],
    manifests: Sequence[Manifest],
) -> None:
    """Add rows that the archive took over before their place in history was read."""
    seen, rolling = found.ids_by_range(), found.rolling
    for manifest in log.manifests()[len(manifests) :]:
        if manifest.kind is Kind.ARCHIVE:
            for file in manifest.files:
                rows = read_rows(log.storage, file, rolling.columns)
                missed = seen.rows_of(rows["record_id"].to_numpy()) == 0
                found.add(rolling.prepared(rows.filter(pa.array(missed)), found.name))
            found.archived_count = (found.archived_count or 0) + manifest.fingerprint.rows


def _copies(
    storage: ArrowStorage, rolling: Rolling, files: Sequence[DataFile], ids: pa.ChunkedArray
) -> pa.Table:
    """The archived rows of some ids."""
    low, high = compute.min(ids).as_py(), compute.max(ids).as_py()
    found = [rolling.columns.empty_table()]
    for file in files:
        if file.first_id <= high and file.last_id >= low:
            rows = read_rows(storage, file, rolling.columns)
            found.append(rows.filter(compute.is_in(rows["record_id"], ids)))
    return pa.concat_tables(found)


def _differing(rolling: Rolling, live: pa.Table, archived: pa.Table) -> list[int]:
    """Ids of rows that differ in anything that is read of them.

    Of an error that is the type alone: an archive may leave out its message.
    """
    names, error = rolling.columns.names, rolling.kind.error
    live, archived = (
        rows.set_column(names.index(error), error, without_messages(rows[error]))
        for rows in (live.select(names), archived.select(names))
    )
    both = live.join(archived, "record_id", join_type="inner", right_suffix=":archived")
    differs = [
        compute.or_(
            compute.fill_null(compute.not_equal(one, other), False),
            compute.not_equal(one.is_null(), other.is_null()),
        )
        for name in names
        if name != "record_id"
        for one, other in [(both[name], both[f"{name}:archived"])]
    ]
    found = both.filter(reduce(compute.or_, differs))
    return sorted(set(found["record_id"].to_pylist()))


def _live(database: Database, name: str) -> pa.Table:
    """Live entries: record_id, chain_id."""
    table = entry_tables(name).main
    first, last = database.fetch(lambda connection: id_bounds(connection, table))
    batches = pages(database, table, _LIVE_SCHEMA, first_id=first, last_id=last)
    rows = pa.Table.from_batches(batches, _LIVE_SCHEMA)
    chains = compute.coalesce(rows["origin_id"], rows["record_id"])
    return pa.table({"record_id": rows["record_id"], "chain_id": chains})


def _tables(rolling: Rolling, name: str) -> set[Table]:
    """The history, and the main table if it has one."""
    return {rolling.kind.table(name), rolling.kind.history(name)}
