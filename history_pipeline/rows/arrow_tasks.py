"""Rows of the history of tasks as a roll-up takes them."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import compute

from history_pipeline.rows.arrow_entries import error_types, hours, without_messages
from history_pipeline.rows.arrow_schema import schema_of
from history_pipeline.rows.kind import TASKS

_READ = frozenset(
    {
        "record_id",
        "queue",
        "claims",
        "attempt",
        "created_date",
        "finished_date",
        "finished_by",
        "err",
    }
)
TASK_READ_SCHEMA = schema_of(column for column in TASKS.columns if column.name in _READ)
"""What is read of a task that has ended: never its value, nor its id."""


def tasks(history: pa.Table, table: str) -> pa.Table:
    """Rows of `TASK_READ_SCHEMA` of the history `table`, one for one."""
    created, finished = (
        history[f"{name}_date"].cast(pa.int64()) for name in ("created", "finished")
    )
    return pa.table(
        {
            "table_name": pa.repeat(pa.scalar(table, pa.string()), len(history)),
            "record_id": history["record_id"],
            "queue_name": history["queue"],
            "claimant": history["finished_by"],
            "with_error": history["err"].is_valid(),
            "error_type": error_types(without_messages(history["err"])),
            "claims": history["claims"],
            "attempts": history["attempt"],
            "finished_date": history["finished_date"],
            "hour": hours(finished),
            "lifetime_micros": compute.subtract(finished, created),
        }
    )
