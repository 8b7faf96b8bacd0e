"""Archived entries as rows of the main table, to be posted again in batches."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from queue_core.model.lanes import ANY_NODE
from queue_core.model.states import State
from queue_core.storage.progress import succeeded
from queue_core.storage.rows import headers_of_copy
from sql.tables import ENTRY_COLUMNS

BATCH_ROWS = 500
"""Rows that one transaction posts at most."""
BATCH_BYTES = 16_000_000
"""Most entries, and about the most bytes of payload, that one transaction posts."""

_COPIED = (
    *(
        "queue_name",
        "class_name",
        "event_json",
        "event_bytes",
        "codec",
        "user_token",
        "future_user_token",
    ),
    *("search_key1", "search_key2", "creating_owner", "headers"),
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Of dates as numbers: Python's dates would come in this machine's time zone."""


def to_be_posted(wanted: DataFrame) -> DataFrame:
    """The rows that are not marked as `replayed`, with what `entry` needs of them."""
    micros = f.unix_micros("created_date").alias("created_micros")
    return wanted.where(f.col("replayed").isNull()).select(
        "record_id", "processing_state", "subscribers_done", *_COPIED, micros
    )


def batches(rows: Iterator[Row]) -> Iterator[dict[int, Row]]:
    """Rows by id, in batches of at most `BATCH_ROWS` and about `BATCH_BYTES`."""
    batch, size = dict[int, Row](), 0
    for row in rows:
        batch[row["record_id"]] = row
        size += len(row["event_json"] or "") + len(row["event_bytes"] or b"")
        if len(batch) == BATCH_ROWS or size >= BATCH_BYTES:
            yield batch
            batch, size = {}, 0
    if batch:
        yield batch


def entry(row: Row, now: datetime) -> dict[str, Any]:
    """The row of the main table that posts an archived one again, for any node and due `now`."""
    data = row["event_bytes"]
    return dict.fromkeys(ENTRY_COLUMNS[1:]) | {
        **{name: row[name] for name in _COPIED},
        "headers": headers_of_copy(row["headers"]),
        "event_bytes": None if data is None else bytes(data),
        "created_date": EPOCH + timedelta(microseconds=row["created_micros"]),
        "effective_date": now,
        "lane": ANY_NODE,
        "processing_state": State.AVAILABLE.value,
        **dict.fromkeys(("error_count", "claim_count", "redispatch_count", "crash_count"), 0),
        # A replay of PROCESSED entries runs all their handlers once more.
        "subscribers_done": None
        if row["processing_state"] == State.PROCESSED
        else succeeded(row["subscribers_done"]),
        "replay_of": row["record_id"],
    }
