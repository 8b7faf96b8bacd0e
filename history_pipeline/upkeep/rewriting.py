"""A file of an archive, written anew with some of its rows emptied, and read back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute
from pyarrow.parquet import ParquetWriter

from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.archives.manifest import DataFile
from history_pipeline.archives.parquet_files import row_batches
from history_pipeline.errors import ArchiveDamagedError
from history_pipeline.rows.arrow_entries import without_messages
from history_pipeline.rows.arrow_hashes import fingerprint, row_hashes
from history_pipeline.rows.arrow_schema import schema_of
from history_pipeline.rows.fingerprint import Fingerprint
from history_pipeline.rows.kind import HistoryKind


class Rewritten(NamedTuple):
    """The new file, and the fingerprints of its emptied rows before and after."""

    file: DataFile
    before: Fingerprint
    after: Fingerprint


def rewritten(
    storage: ArrowStorage,
    kind: HistoryKind,
    old: DataFile,
    record_ids: Sequence[int],
    path: str,
    *,
    hashed: Sequence[str],
) -> Rewritten:
    """Write a file anew below another path, with the rows of some ids emptied.

    `hashed` are the columns that the fingerprint of the old file covers. Raises ArchiveDamagedError
    if the old file holds other rows than its manifest says, or the new one is not read back as it
    was written.
    """
    ids, names, schema = pa.array(record_ids, pa.int64()), kind.names, schema_of(kind.columns)
    told, before, after, kept = (Fingerprint() for _ in range(4))
    with (
        storage.new(path) as stream,
        ParquetWriter(stream, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        for rows in row_batches(storage, old, schema):
            sought = np.asarray(compute.is_in(rows["record_id"], ids))
            written = emptied(rows, kind, sought)
            hashes = row_hashes(rows, names)
            told += fingerprint(hashes if hashed == names else row_hashes(rows, hashed))
            before += fingerprint(hashes[sought])
            kept += fingerprint(hashes[~sought])
            after += fingerprint(row_hashes(written.filter(pa.array(sought)), names))
            writer.write_table(written)
    if told != old.fingerprint or before.rows != len(record_ids):
        raise ArchiveDamagedError(
            f"{storage.root}/{old.path} holds {told.rows} rows, which differ from the "
            f"{old.fingerprint.rows} rows of its manifest. Nothing was erased. Find all damaged "
            "files: stickybus history verify. Bring them back from a copy.",
            path=f"{storage.root}/{old.path}",
        )
    size_bytes, sha256 = storage.digest(path)
    changes = {"path": path, "size_bytes": size_bytes, "sha256": sha256}
    new = msgspec.structs.replace(old, fingerprint=kept + after, **changes)
    _check_read_back(storage, kind, new)
    return Rewritten(new, before, after)


def emptied(rows: pa.Table, kind: HistoryKind, which: NDArray[np.bool_]) -> pa.Table:
    """Rows of history, of which some say nothing any more of what was posted."""
    mask = pa.array(which)
    values = {name: pa.scalar(None, rows.schema.field(name).type) for name in kind.erased}
    values[kind.error] = without_messages(rows[kind.error])
    columns = [
        compute.if_else(mask, values[name], rows[name]) if name in values else rows[name]
        for name in rows.column_names
    ]
    return pa.table(columns, schema=rows.schema)


def unerased(rows: pa.Table, kind: HistoryKind) -> pa.ChunkedArray:
    """Which rows still say something that `emptied` would take."""
    errors, types = (
        compute.fill_null(texts, "")
        for texts in (rows[kind.error], without_messages(rows[kind.error]))
    )
    full = [rows[name].is_valid() for name in kind.erased]
    return reduce(compute.or_, full, compute.not_equal(errors, types))


def _check_read_back(storage: ArrowStorage, kind: HistoryKind, new: DataFile) -> None:
    found = Fingerprint()
    for rows in row_batches(storage, new, schema_of(kind.columns)):
        found += fingerprint(row_hashes(rows, kind.names))
    if found != new.fingerprint:
        raise ArchiveDamagedError(
            f"{storage.root}/{new.path}: {new.fingerprint.rows} rows were written, but the "
            f"{found.rows} rows read back differ. Nothing was erased. Look at the file system, and "
            "start again.",
            path=f"{storage.root}/{new.path}",
        )
