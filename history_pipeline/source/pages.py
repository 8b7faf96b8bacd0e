"""Rows of an entry table by their ids, read page by page.

Each page is one statement and one transaction, however slowly Spark takes the rows: no
snapshot, lock or statement lasts longer than a page, and a page after a deadlock or a broken
connection is simply read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import compute
from sqlalchemy import ColumnElement, Connection, Select, Table, select

from history_pipeline.source.batches import record_batch, selected
from sql.database import Database
from sql.drivers.bulk import BulkReads

PAGE_BYTES = 4 * 1024 * 1024
"""Size that a page should have, computed from the rows of the page before."""
FIRST_ROWS, MOST_ROWS = 100, 5_000
"""Rows of the first page, whose size is unknown, and of the largest.

The latter is also the most rows in memory at once.
"""
_GROWTH = 5
"""A page has at most this many times the rows of the one before."""
_ID = "record_id"


def pages(
    database: Database,
    table: Table,
    schema: pa.Schema,
    *,
    first_id: int,
    last_id: int,
    where: Sequence[ColumnElement[bool]] = (),
) -> Iterator[pa.RecordBatch]:
    """The rows with ids from `first_id` to `last_id`, both included, that meet `where`.

    They come in batches of `schema`.

    Columns of the schema that the table does not have are NULL.
    """
    statement, ordered = _selecting(database, table, schema, where)
    statement = statement.order_by(table.c.record_id)
    next_id, limit = first_id, FIRST_ROWS
    while next_id <= last_id:
        chosen = statement.where(table.c.record_id.between(next_id, last_id)).limit(limit)
        page = database.fetch(
            partial(_page, database.dialect.bulk, statement=chosen, schema=ordered)
        )
        full = page.num_rows == limit
        if full:
            page, next_id, limit = _cut(page, limit)
        if page.num_rows:
            yield page.select(schema.names)
            limit = _fitting(page, limit)
        if not full:
            return


def rows_of_ids(
    database: Database,
    table: Table,
    schema: pa.Schema,
    ids: Sequence[int],
    *,
    where: Sequence[ColumnElement[bool]],
) -> Iterator[pa.RecordBatch]:
    """As `pages`, the rows of the given ids that are there and meet `where`."""
    statement, ordered = _selecting(database, table, schema, where)
    place, limit = 0, FIRST_ROWS
    while place < len(ids):
        chosen = statement.where(table.c.record_id.in_(ids[place : place + limit]))
        page = database.fetch(
            partial(_page, database.dialect.bulk, statement=chosen, schema=ordered)
        )
        place += limit
        if page.num_rows:
            yield page.select(schema.names)
            limit = _fitting(page, limit)


def _selecting(
    database: Database, table: Table, schema: pa.Schema, where: Sequence[ColumnElement[bool]]
) -> tuple[Select[Any], pa.Schema]:
    """A statement for the columns of `schema` with the id first, and the schema of its rows."""
    names = [_ID, *(name for name in schema.names if name != _ID)]
    ordered = pa.schema([pa.field(_ID, pa.int64()), *(schema.field(name) for name in names[1:])])
    columns = [selected(database.dialect.bulk, table.c.get(name)).label(name) for name in names]
    return select(*columns).where(*where), ordered


def _page(
    bulk: BulkReads, connection: Connection, *, statement: Select[Any], schema: pa.Schema
) -> pa.RecordBatch:
    return record_batch(bulk, connection, statement, schema)


def _cut(page: pa.RecordBatch, limit: int) -> tuple[pa.RecordBatch, int, int]:
    """Return a full page without its last id, the id to go on with, and the next limit.

    The last id may have more rows.

    The key of history is (id, date), so that an id may be there twice, though only by somebody's
    hand.
    """
    ids = page.column(0)
    last = ids[-1].as_py()
    kept = compute.sum(compute.not_equal(ids, last)).as_py() or 0
    # A page of one id alone is too small.
    return page.slice(0, kept), last, limit if kept else limit * _GROWTH


def _fitting(page: pa.RecordBatch, limit: int) -> int:
    """Rows of the next page, so that it has about `PAGE_BYTES`."""
    fitting: int = PAGE_BYTES * page.num_rows // max(1, page.nbytes)
    return max(2, min(fitting, limit * _GROWTH, MOST_ROWS))
