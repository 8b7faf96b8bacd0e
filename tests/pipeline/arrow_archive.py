"""Archives that are written without Spark, for tests that read or change one without it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import URL

from history_pipeline.archives.archive_log import ArchiveLog
from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.archives.manifest import DataFile, Kind, Manifest, new_run
from history_pipeline.rows.arrow_hashes import fingerprint, row_hashes
from history_pipeline.rows.arrow_schema import schema_of
from history_pipeline.rows.fingerprint import joined
from history_pipeline.rows.kind import kind_of
from history_pipeline.upkeep.publication import publish
from sql.database import Database
from sql.families import ARCHIVES

BEFORE = datetime(2026, 4, 1, tzinfo=UTC)


def write_archive(
    url: URL, target: str, runs: Iterable[Sequence[Mapping[str, Any]]], table: str = "bus_events"
) -> None:
    """Write an archive with some runs of rows, which history holds no more."""
    log, columns = ArchiveLog(ArrowStorage(f"{target}/{table}"), table), [*kind_of(table).columns]
    database = Database(url)
    archives = database.dialect.statements_for(ARCHIVES)()
    try:
        first: str | None = None
        for number, rows in enumerate(runs, start=1):
            run = new_run(created := BEFORE + timedelta(seconds=number))
            first = first or run
            files = [
                _written(log.storage, run, day, list(of_day), schema_of(columns))
                for day, of_day in groupby(sorted(rows, key=_day), _day)
            ]
            manifest = Manifest(
                number=number,
                kind=Kind.ARCHIVE,
                run=run,
                archive=first,
                table=table,
                created=created,
                fingerprint=joined([file.fingerprint for file in files]),
                files=files,
                first_id=min(file.first_id for file in files),
                last_id=max(file.last_id for file in files),
                before=BEFORE,
                columns=columns,
            )
            publish(log, database, manifest)
            delete = partial(
                archives.enter_deleted,
                run=run,
                entries=manifest.fingerprint.rows,
                newest_date=None,
                now=BEFORE,
            )
            database.write(delete)
    finally:
        database.close()


def all_texts(target: str) -> str:
    """All that stands in any Parquet file below a directory, whoever names it."""
    files = Path(target).rglob("*.parquet")
    return "".join(str(pq.ParquetFile(file).read().to_pydict()) for file in files)


def _day(row: Mapping[str, Any]) -> date:
    day: date = row["finished_date"].date()
    return day


def _written(
    storage: ArrowStorage,
    run: str,
    day: date,
    rows: Sequence[Mapping[str, Any]],
    schema: pa.Schema,
) -> DataFile:
    path = f"data/{run}/event_date={day}/part-00000.zstd.parquet"
    table = pa.Table.from_pylist([dict(row) for row in rows], schema)
    with storage.new(path) as file:
        pq.write_table(table, file, compression="zstd")
    size_bytes, sha256 = storage.digest(path)
    return DataFile(
        path=path,
        event_date=str(day),
        size_bytes=size_bytes,
        first_id=rows[0]["record_id"],
        last_id=rows[-1]["record_id"],
        fingerprint=fingerprint(row_hashes(table, schema.names)),
        sha256=sha256,
    )


def manifests(target: str, table: str = "bus_events") -> list[Manifest]:
    return ArchiveLog(ArrowStorage(f"{target}/{table}"), table).manifests()
