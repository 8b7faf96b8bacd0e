"""Roll-ups of the days of an archive, kept beside its files, so that a day is read once.

    DIR/bus_events/rollups/2026-01-31-0123456789abcdef.rollup

Each begins with a SHA-256 of its own bytes and of its files' manifest entries. A roll-up that was
changed is made anew. Its name tells its files, so a day with other files gets another one. Roll-ups
may be deleted at any time, and no copy of an archive needs them. `remove_leftovers` removes those
whose files the archive no longer holds.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import compute

from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.archives.manifest import DataFile
from history_pipeline.archives.parquet_files import read_rows
from history_pipeline.archives.rollup_names import made_of, rollup_name
from history_pipeline.archives.verification import check_sound
from history_pipeline.period import EVER, Period
from history_pipeline.rollups.rolling import Rolling
from history_pipeline.rollups.tallies import Rollup
from history_pipeline.rows.arrow_entries import within
from queue_core.runtime.log import get_logger

VERSION = 1
"""It is raised when the roll-up of the same rows changes."""
_PART = "part"
_SEAL_BYTES = hashlib.sha256().digest_size

_log = get_logger(__name__)


class KeptRollups:
    """The roll-ups of one table's archive."""

    def __init__(self, storage: ArrowStorage, table: str, rolling: Rolling) -> None:
        self._storage = storage
        self._table = table
        self._rolling = rolling

    def of_day(self, day: str, files: Sequence[DataFile]) -> Rollup:
        """The roll-up of a day (`2026-01-31`), whose files are given: the kept one, or a new one.

        Raises ArchiveDamagedError if a file is not the one that its manifest names. A roll-up that
        can't be kept is logged.
        """
        path = f"rollups/{rollup_name(day, files)}"
        kept = self._read(path, files)
        if kept is not None:
            return kept
        for file in files:
            # Or its wrong figures would stay when the file has been brought back.
            check_sound(self._storage, file)
        found = rolled_files(self._storage, self._table, self._rolling, files)
        content = _encoded(found)
        try:
            self._storage.put(path, _seal(content, files) + content)
        except OSError as error:
            # Such as an archive that this user may only read.
            _log.warning("rollup_not_kept", path=f"{self._storage.root}/{path}", error=str(error))
        return found

    def _read(self, path: str, files: Sequence[DataFile]) -> Rollup | None:
        try:
            stored = self._storage.read(path)
        except OSError:
            return None
        seal, content = stored[:_SEAL_BYTES], stored[_SEAL_BYTES:]
        if seal != _seal(content, files):
            return None
        table = pq.read_table(io.BytesIO(content))
        return {
            name: table.filter(compute.equal(table[_PART], name)).select(schema.names).cast(schema)
            for name, schema in self._rolling.schemas.items()
        }


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


def _seal(content: bytes, files: Sequence[DataFile]) -> bytes:
    """The SHA-256 of a roll-up with these bytes, which was made of some files."""
    return hashlib.sha256(f"{VERSION} {made_of(files)} ".encode() + content).digest()


def _encoded(rollup: Rollup) -> bytes:
    """One Parquet file: the rows of all tables, with the name of their table."""
    parts = [
        table.append_column(_PART, pa.repeat(pa.scalar(name), len(table)))
        for name, table in rollup.items()
    ]
    written = io.BytesIO()
    together = pa.concat_tables(parts, promote_options="default")
    pq.write_table(together, written, compression="zstd")
    return written.getvalue()
