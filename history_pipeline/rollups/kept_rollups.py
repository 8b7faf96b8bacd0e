"""Roll-ups of the days of an archive, kept beside its files, so that a day is read once.

    DIR/bus_events/rollups/2026-01-31.parquet

Each has a hash of the files that it was made of. One that does not fit the files of its day, or
can't be read, is made anew. So they may be deleted at any time, and no copy of an archive needs
them. `remove_leftovers` removes those of days that the archive holds no more.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import compute

from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.archives.manifest import DataFile
from history_pipeline.archives.parquet_files import read_rows
from history_pipeline.period import EVER, Period
from history_pipeline.rollups.rolling import Rolling
from history_pipeline.rollups.tallies import Rollup
from history_pipeline.rows.arrow_entries import within
from queue_core.runtime.log import get_logger

VERSION = 1
"""It is raised when the roll-up of the same rows changes."""
_PART = "part"
_MADE_OF = b"stickybus.made_of"

_log = get_logger(__name__)


class KeptRollups:
    """The roll-ups of one table's archive."""

    def __init__(self, storage: ArrowStorage, table: str, rolling: Rolling) -> None:
        self._storage = storage
        self._table = table
        self._rolling = rolling

    def of_day(self, day: str, files: Sequence[DataFile]) -> Rollup:
        """The roll-up of a day (`2026-01-31`), whose files are given: the kept one, or a new one.

        Raises ArchiveDamagedError if a file can't be read. A roll-up that can't be kept is logged.
        """
        path, made_of = f"rollups/{day}.parquet", _made_of(files)
        kept = self._read(path, made_of)
        if kept is not None:
            return kept
        found = rolled_files(self._storage, self._table, self._rolling, files)
        try:
            self._storage.put(path, _encoded(found, made_of))
        except OSError as error:
            # Such as an archive that this user may only read.
            _log.warning("rollup_not_kept", path=f"{self._storage.root}/{path}", error=str(error))
        return found

    def _read(self, path: str, made_of: bytes) -> Rollup | None:
        try:
            content = self._storage.read(path)
        except OSError:
            return None
        try:
            table = pq.read_table(io.BytesIO(content))
            if (table.schema.metadata or {}).get(_MADE_OF) != made_of:
                return None
            return {
                name: table.filter(compute.equal(table[_PART], name))
                .select(schema.names)
                .cast(schema)
                for name, schema in self._rolling.schemas.items()
            }
        except (pa.ArrowException, OSError, KeyError):
            return None


def rolled_files(
    storage: ArrowStorage,
    table: str,
    rolling: Rolling,
    files: Sequence[DataFile],
    period: Period = EVER,
) -> Rollup:
    """The roll-up of the rows of some files: all ids, and figures of those of a period.

    Raises ArchiveDamagedError if one can't be read.
    """
    found = []
    for file in files:
        rows = rolling.prepared(read_rows(storage, file, rolling.columns), table)
        found.append(rolling.figures_of(within(rows, period)) | rolling.ids_of(rows))
    return rolling.merged(found)


def _made_of(files: Sequence[DataFile]) -> bytes:
    facts = sorted((file.path, file.sha256 or repr(file.fingerprint)) for file in files)
    return hashlib.sha256(json.dumps([VERSION, facts]).encode()).hexdigest().encode()


def _encoded(rollup: Rollup, made_of: bytes) -> bytes:
    """One Parquet file: the rows of all tables, with the name of their table."""
    parts = [
        table.append_column(_PART, pa.repeat(pa.scalar(name), len(table)))
        for name, table in rollup.items()
    ]
    written = io.BytesIO()
    together = pa.concat_tables(parts, promote_options="default")
    marked = together.replace_schema_metadata({_MADE_OF: made_of})
    pq.write_table(marked, written, compression="zstd")
    return written.getvalue()
