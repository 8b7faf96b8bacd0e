"""Rows of history as a roll-up takes them, without Spark: `entries.entries` by Arrow.

`docs/reference/statistics.md` defines the columns.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import compute

from history_pipeline.period import Period
from history_pipeline.rows.columns import ERROR_TYPE, ERROR_TYPE_LENGTH

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_HOUR = 3_600_000_000
"""Microseconds of an hour."""


def entries(history: pa.Table, table: str) -> pa.Table:
    """Rows of `READ_SCHEMA` of the history of the main table `table`, one for one."""
    micros = {
        name: history[f"{name}_date"].cast(pa.int64())
        for name in ("created", "effective", "started", "finished")
    }
    state, errors = history["processing_state"], history["error_count"]
    failed, reaped = compute.equal(state, "FAILED"), compute.equal(state, "REAPED")
    # A retry overwrites both dates, so that only the first run tells how long an entry waited for
    # its start.
    first_run = compute.less_equal(errors, failed.cast(errors.type))
    scheduled = compute.greater(micros["effective"], micros["created"])
    due = compute.if_else(scheduled, micros["effective"], micros["created"])
    waited = compute.subtract(micros["started"], due)
    lane = _only(compute.not_equal(history["lane"], ""), history["lane"])
    return pa.table(
        {
            "table_name": pa.repeat(pa.scalar(table, pa.string()), len(history)),
            "record_id": history["record_id"],
            "chain_id": compute.coalesce(history["origin_id"], history["record_id"]),
            "queue_name": history["queue_name"],
            "class_name": history["class_name"],
            "node": compute.if_else(reaped, lane, history["processing_owner"]),
            "outcome": state,
            "error_count": errors,
            "redispatch_count": history["redispatch_count"],
            "finished_date": history["finished_date"],
            "hour": hours(micros["finished"]),
            "handler_micros": compute.subtract(micros["finished"], micros["started"]),
            "start_latency_micros": _only(
                compute.and_(first_run, compute.invert(scheduled)), waited
            ),
            "lateness_micros": _only(compute.and_(first_run, scheduled), waited),
            "error_type": error_types(_only(failed, history["last_error"])),
        }
    )


def within(rows: pa.Table, period: Period) -> pa.Table:
    """The rows of entries that ended in a period."""
    ended = rows["finished_date"]
    if period.since is not None:
        rows = rows.filter(compute.greater_equal(ended, pa.scalar(period.since, _TIMESTAMP)))
        ended = rows["finished_date"]
    if period.until is not None:
        rows = rows.filter(compute.less(ended, pa.scalar(period.until, _TIMESTAMP)))
    return rows


def error_types(errors: pa.ChunkedArray) -> pa.ChunkedArray:
    """The names of the errors' types: the text before the first colon of its first line."""
    parts = compute.extract_regex(errors, rf"^(?P<type>[^\n:]{{0,{ERROR_TYPE_LENGTH}}})")
    return compute.struct_field(parts, "type")


def without_messages(errors: pa.ChunkedArray) -> pa.ChunkedArray:
    """What stays of errors whose messages go: the names of their types."""
    return compute.struct_field(compute.extract_regex(errors, ERROR_TYPE), "type")


def _only(mask: Any, values: Any) -> Any:
    """The values where the mask is true, and else null."""
    return compute.if_else(mask, values, pa.scalar(None, values.type))


def hours(micros: pa.ChunkedArray) -> pa.ChunkedArray:
    """The hours in which some dates lie, given in microseconds since 1970."""
    # By numbers: Arrow's own rounding asks the machine for a list of time zones.
    whole = micros.to_numpy() // _HOUR * _HOUR
    return pa.chunked_array([pa.array(whole, pa.int64()).cast(_TIMESTAMP)])
