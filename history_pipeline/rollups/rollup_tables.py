"""The tables of a roll-up of entries, and how their rows add up."""

from __future__ import annotations

import pyarrow as pa

from history_pipeline.audits.figures import GROUPINGS, KEYS, MEASURES
from history_pipeline.rollups.tallies import COUNT, DATE, TEXT, Grouped, Order, Tally

COUNTS = ("processed", "failed", "removed", "reaped", "ok", "retried", "retries")
GROUPED = Grouped(
    [(key, DATE if key == "hour" else TEXT) for key in KEYS],
    {name: GROUPINGS[name] for name in ("event_type", "node", "hour")},
)
"""The groupings that are counted. The others are sums of event types."""
_ENTRY = [
    *(("table_name", TEXT), ("record_id", COUNT), ("queue_name", TEXT), ("class_name", TEXT)),
    *(("node", TEXT), ("outcome", TEXT), ("finished_date", DATE)),
]
_ENTRIES: dict[str, tuple[pa.DataType, str]] = {"entries": (COUNT, "sum")}
_KEYED = [("table_name", "ascending"), ("record_id", "ascending")]
COUNTED = {"counts": GROUPED.counts(COUNTS, MEASURES), "times": GROUPED.times()}
FIGURES: dict[str, Tally | Order] = {
    **COUNTED,
    "failures": Tally(
        [(name, TEXT) for name in ("table_name", "queue_name", "class_name", "error_type")],
        _ENTRIES,
    ),
    "retries": Tally(
        [("table_name", TEXT), ("failed_runs", pa.int32()), ("outcome", TEXT)], _ENTRIES
    ),
    "lateness": Tally([("table_name", TEXT), ("class", pa.int32())], _ENTRIES),
    "redispatches": Tally(
        [("node", TEXT)],
        {"reaped": (COUNT, "sum"), "first": (DATE, "min"), "last": (DATE, "max")},
    ),
    "slowest": Order(
        pa.schema([*_ENTRY, ("micros", COUNT)]),
        [("micros", "descending"), *_KEYED],
    ),
    "most_failing": Order(
        pa.schema(
            [
                *_ENTRY,
                *(("failed_runs", pa.int32()), ("redispatches", pa.int32()), ("error_type", TEXT)),
            ]
        ),
        [("failed_runs", "descending"), ("redispatches", "descending"), *_KEYED],
    ),
}
