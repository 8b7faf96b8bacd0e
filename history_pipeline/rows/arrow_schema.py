"""Entry tables as Arrow sees them."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from history_pipeline.rows.columns import HISTORY_COLUMNS, READ_COLUMNS, ArchivedColumn

_TYPES = {
    "timestamp": pa.timestamp("us", tz="UTC"),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "binary": pa.binary(),
    "string": pa.string(),
}


def schema_of(columns: Iterable[ArchivedColumn]) -> pa.Schema:
    """The Arrow schema of columns, in which Spark takes rows, too. All columns are nullable."""
    return pa.schema([pa.field(column.name, _TYPES[column.type]) for column in columns])


HISTORY_ARROW_SCHEMA = schema_of(HISTORY_COLUMNS)
"""All columns of a history table."""
READ_SCHEMA = pa.schema([HISTORY_ARROW_SCHEMA.field(name) for name in READ_COLUMNS])
"""Those of `READ_COLUMNS`."""
