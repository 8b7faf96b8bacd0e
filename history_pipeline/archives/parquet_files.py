"""The Parquet files of an archive, opened by Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyarrow.parquet import ParquetFile

from history_pipeline.archives.arrow_storage import ArrowStorage
from history_pipeline.archives.manifest import DataFile
from history_pipeline.errors import ArchiveDamagedError
from history_pipeline.rows.arrow_schema import HISTORY_ARROW_SCHEMA

BATCH_ROWS = 16_384
"""Rows whose columns are in memory at once."""


@contextmanager
def parquet_file(storage: ArrowStorage, file: DataFile) -> Iterator[ParquetFile]:
    """A file for the block. A failure in it raises ArchiveDamagedError."""
    try:
        with (
            storage.open(file.path) as opened,
            ParquetFile(opened, page_checksum_verification=True) as parquet,
        ):
            yield parquet
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise ArchiveDamagedError(
            f"{storage.root}/{file.path} can't be read: {reason}. Nothing was written. Find all "
            "damaged files: stickybus history verify. Bring them back from a copy.",
            path=f"{storage.root}/{file.path}",
        ) from error


def read_rows(storage: ArrowStorage, file: DataFile, schema: pa.Schema) -> pa.Table:
    """The rows of a file, with a schema. Columns that history did not have yet are null."""
    with parquet_file(storage, file) as parquet:
        return completed(parquet.read(columns=schema.names), schema)


def row_batches(storage: ArrowStorage, file: DataFile, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a file in batches of `BATCH_ROWS`, with all columns that history has now.

    Raises ArchiveDamagedError if the file can't be read.
    """
    with parquet_file(storage, file) as parquet:
        for batch in parquet.iter_batches(BATCH_ROWS):
            yield completed(pa.Table.from_batches([batch]), schema)


def named(
    rows: pa.Table, names: Sequence[str], schema: pa.Schema = HISTORY_ARROW_SCHEMA
) -> pa.Table:
    """The columns of some names of a schema. Those that history did not have yet are null."""
    return completed(rows, pa.schema([schema.field(name) for name in names]))


def completed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema. Those that the rows do not have are null."""
    columns = [
        rows[field.name] if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.table(columns, names=schema.names).cast(schema)
