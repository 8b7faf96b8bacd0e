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
from history_pipeline.rows.arrow_schema import HISTORY_ARROW_SCHEMA
from history_pipeline.rows.columns import HISTORY_COLUMNS, PAYLOAD
from history_pipeline.rows.fingerprint import Fingerprint

EMPTIED = (*PAYLOAD, "user_token", "future_user_token", "search_key1", "search_key2", "headers")
"""The columns that are NULL afterwards. Of an error, its type stays."""
_NAMES = tuple(column.name for column in HISTORY_COLUMNS)


class Rewritten(NamedTuple):
    """The new file, and the fingerprints of its emptied rows before and after."""

    file: DataFile
    before: Fingerprint
    after: Fingerprint


def rewritten(
    storage: ArrowStorage,
    old: DataFile,
    record_ids: Sequence[int],
    path: str,
    *,
    hashed: Sequence[str] = _NAMES,
) -> Rewritten:
    """Write a file anew below another path, with the rows of some ids emptied.

    `hashed` are the columns that the fingerprint of the old file covers. Raises ArchiveDamagedError
    if the old file holds other rows than its manifest says, or the new one is not read back as it
    was written.
    """
    ids = pa.array(record_ids, pa.int64())
    told, before, after, kept = (Fingerprint() for _ in range(4))
    with (
        storage.new(path) as stream,
        ParquetWriter(
            stream, HISTORY_ARROW_SCHEMA, compression="zstd", write_page_checksum=True
        ) as writer,
    ):
        for rows in row_batches(storage, old):
            sought = np.asarray(compute.is_in(rows["record_id"], ids))
            written = emptied(rows, sought)
            hashes = row_hashes(rows, _NAMES)
            told += fingerprint(hashes if hashed == _NAMES else row_hashes(rows, hashed))
            before += fingerprint(hashes[sought])
            kept += fingerprint(hashes[~sought])
            after += fingerprint(row_hashes(written.filter(pa.array(sought)), _NAMES))
            writer.write_table(written)
    if told != old.fingerprint or before.rows != len(record_ids):
        raise ArchiveDamagedError(
            f"{storage.root}/{old.path} holds {told.rows} rows, its manifest says {old.fingerprint.rows}, or others. "
            "Nothing was erased. Find all damaged files: stickybus history verify. Bring them back from a copy.",
            path=f"{storage.root}/{old.path}",
        )
    size_bytes, sha256 = storage.digest(path)
    changes = {"path": path, "size_bytes": size_bytes, "sha256": sha256}
    new = msgspec.structs.replace(old, fingerprint=kept + after, **changes)
    _check_read_back(storage, new)
    return Rewritten(new, before, after)


def emptied(rows: pa.Table, which: NDArray[np.bool_]) -> pa.Table:
    """Rows of history, of which some say nothing any more of what was posted."""
    mask = pa.array(which)
    values = {name: pa.scalar(None, HISTORY_ARROW_SCHEMA.field(name).type) for name in EMPTIED}
    values["last_error"] = without_messages(rows["last_error"])
    columns = [
        compute.if_else(mask, values[name], rows[name]) if name in values else rows[name]
        for name in rows.column_names
    ]
    return pa.table(columns, schema=rows.schema)


def unerased(rows: pa.Table) -> pa.ChunkedArray:
    """Which rows still say something that `emptied` would take."""
    errors, types = (
        compute.fill_null(texts, "")
        for texts in (rows["last_error"], without_messages(rows["last_error"]))
    )
    full = [rows[name].is_valid() for name in EMPTIED]
    return reduce(compute.or_, full, compute.not_equal(errors, types))


def _check_read_back(storage: ArrowStorage, new: DataFile) -> None:
    found = Fingerprint()
    for rows in row_batches(storage, new):
        found += fingerprint(row_hashes(rows, _NAMES))
    if found != new.fingerprint:
        raise ArchiveDamagedError(
            f"{storage.root}/{new.path}: {new.fingerprint.rows} rows were written, and {found.rows} read back, or others. "
            "Nothing was erased. Look at the file system, and start again.",
            path=f"{storage.root}/{new.path}",
        )
