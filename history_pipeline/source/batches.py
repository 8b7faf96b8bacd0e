"""Rows of a bulk read as Arrow record batches.

All databases give the same batch for the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import csv
from sqlalchemy import Column, ColumnElement, Connection, Select, null

from sql.drivers.bulk import BulkReads, CsvText, DriverRows


def selected(bulk: BulkReads, column: Column[Any] | None) -> ColumnElement[Any]:
    """A column as `record_batch` reads it by `bulk`; NULL for one that the table does not have."""
    return null() if column is None else bulk.column(column)


def record_batch(
    bulk: BulkReads, connection: Connection, statement: Select[Any], schema: pa.Schema
) -> pa.RecordBatch:
    """The rows of `statement`, whose columns are those of `schema` as `selected` writes them."""
    match bulk.read(connection, statement):
        case CsvText(text):
            return _from_csv(text, schema)
        case DriverRows(rows, numeric_dates):
            return _from_rows(rows, schema, pa.int64() if numeric_dates else pa.string())


def _from_csv(text: bytes, schema: pa.Schema) -> pa.RecordBatch:
    if not text:
        return pa.RecordBatch.from_pylist([], schema=schema)
    stored = {
        field.name: pa.string() if field.type == pa.binary() else field.type for field in schema
    }
    table = csv.read_csv(
        pa.py_buffer(text),
        # One block: a row must not span two.
        read_options=csv.ReadOptions(
            column_names=schema.names, use_threads=False, block_size=len(text) + 1
        ),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=stored,
            # NULL is nothing at all, an empty text is a pair of quotes.
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    arrays = [
        _unhexed(column) if field.type == pa.binary() else column.combine_chunks()
        for field, column in zip(schema, table.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _from_rows(
    rows: Sequence[Sequence[Any]], schema: pa.Schema, dates: pa.DataType
) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [
        _dates(values, field.type, dates)
        if pa.types.is_timestamp(field.type)
        else pa.array(values, field.type)
        for field, values in zip(schema, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _dates(values: Sequence[Any], wanted: pa.DataType, stored: pa.DataType) -> pa.Array:
    array = pa.array(values, stored)
    # Texts have no time zone, and are UTC.
    return (array if stored == pa.int64() else array.cast(pa.timestamp("us"))).cast(wanted)


def _unhexed(column: pa.ChunkedArray) -> pa.Array:
    values = [None if value is None else bytes.fromhex(value[2:]) for value in column.to_pylist()]
    return pa.array(values, pa.binary())
