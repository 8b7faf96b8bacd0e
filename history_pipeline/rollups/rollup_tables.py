"""The tables of a roll-up, and how their rows add up."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from history_pipeline.audits.figures import KEYS, MEASURES

Rollup = dict[str, pa.Table]
"""The tables of `SCHEMAS` by name."""

COUNTS = ("processed", "failed", "removed", "reaped", "ok", "retried", "retries")
KEPT_GROUPINGS = ("event_type", "node", "hour")
"""The groupings that are counted. The others are sums of event types."""
_TEXT, _COUNT = pa.string(), pa.int64()
_DATE = pa.timestamp("us", tz="UTC")
KEY_TYPES = [(key, _DATE if key == "hour" else _TEXT) for key in KEYS]
GROUP = [("grouping", _TEXT), *KEY_TYPES]
_ENTRY = [
    *(("table_name", _TEXT), ("record_id", _COUNT), ("queue_name", _TEXT), ("class_name", _TEXT)),
    *(("node", _TEXT), ("outcome", _TEXT), ("finished_date", _DATE)),
]


class Part(NamedTuple):
    """One table of a roll-up. Rows of equal `keys` are one row, whose values are aggregated."""

    keys: list[tuple[str, pa.DataType]]
    values: dict[str, tuple[pa.DataType, str]]

    @property
    def schema(self) -> pa.Schema:
        """Keys, then values."""
        return pa.schema([*self.keys, *((name, of) for name, (of, _) in self.values.items())])


_ENTRIES: dict[str, tuple[pa.DataType, str]] = {"entries": (_COUNT, "sum")}
GROUPED = {
    "counts": Part(
        GROUP,
        {
            **dict.fromkeys(COUNTS, (_COUNT, "sum")),
            **{
                f"{measure}_{figure}": how
                for measure in MEASURES
                for figure, how in {
                    "count": (_COUNT, "sum"),
                    # Not whole numbers: dates written by hand would pass 64 bits.
                    "total": (pa.float64(), "sum"),
                    "min": (_COUNT, "min"),
                    "max": (_COUNT, "max"),
                }.items()
            },
        },
    ),
    "times": Part([*GROUP, ("measure", _TEXT), ("bucket", pa.int32())], _ENTRIES),
    "failures": Part(
        [(name, _TEXT) for name in ("table_name", "queue_name", "class_name", "error_type")],
        _ENTRIES,
    ),
    "retries": Part(
        [("table_name", _TEXT), ("failed_runs", pa.int32()), ("outcome", _TEXT)], _ENTRIES
    ),
    "lateness": Part([("table_name", _TEXT), ("class", pa.int32())], _ENTRIES),
    "redispatches": Part(
        [("node", _TEXT)],
        {"reaped": (_COUNT, "sum"), "first": (_DATE, "min"), "last": (_DATE, "max")},
    ),
}
_KEYED = [("table_name", "ascending"), ("record_id", "ascending")]
ORDERED = {
    "slowest": (
        pa.schema([*_ENTRY, ("micros", _COUNT)]),
        [("micros", "descending"), *_KEYED],
    ),
    "most_failing": (
        pa.schema(
            [
                *_ENTRY,
                *(("failed_runs", pa.int32()), ("redispatches", pa.int32()), ("error_type", _TEXT)),
            ]
        ),
        [("failed_runs", "descending"), ("redispatches", "descending"), *_KEYED],
    ),
}
"""Tables of the first `STANDING_OUT` rows in an order."""
RANGE = ("first_id", "last_id", "rows")
"""The fields of `IdRanges`."""
IDS = pa.schema([("table_name", _TEXT), *((name, _COUNT) for name in RANGE)])
"""Ids of rows that are chains of their own and have ended, as ranges."""
CHAINS = pa.schema(
    [
        *(("table_name", _TEXT), ("record_id", _COUNT), ("chain_id", _COUNT)),
        ("terminal", pa.bool_()),
    ]
)
"""The other rows: copies, and those that were taken from a dead node."""
SCHEMAS = {
    **{name: part.schema for name, part in GROUPED.items()},
    **{name: schema for name, (schema, _) in ORDERED.items()},
    "ids": IDS,
    "chains": CHAINS,
}
ID_TABLES = ("ids", "chains")
"""The tables by which completeness is judged."""
FIGURES = (*GROUPED, *ORDERED)
"""The others."""
