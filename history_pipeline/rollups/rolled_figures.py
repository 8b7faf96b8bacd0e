"""The tables of an audit by a roll-up, as `statistics` and `breakdowns` make them of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

import pyarrow as pa

from history_pipeline.audits.figures import (
    COMPARED,
    GROUPINGS,
    KEYS,
    LATENESS_SECONDS,
    MEASURES,
)
from history_pipeline.rollups.group_statistics import (
    comparison_of,
    group_statistics,
    nulls_first,
    time_fields,
)
from history_pipeline.rollups.rollup_tables import COUNTED, COUNTS, GROUPED
from history_pipeline.rollups.tallies import Rollup

_MICROS = 1_000_000
"""Microseconds of a second."""
_TEXT, _COUNT, _SECONDS = pa.string(), pa.int64(), pa.float64()
_COUNTS = dict.fromkeys(COUNTS, _COUNT) | {"retry_percentage": _SECONDS}
STATISTICS = pa.schema(
    [COUNTED["counts"].schema.field(name) for name in ("grouping", *KEYS)]
    + [*_COUNTS.items(), *time_fields(MEASURES).items()]
)
_BOUNDS = ("from_seconds", "to_seconds")
_LATENESS = pa.schema(
    [("table_name", _TEXT), *((bound, _SECONDS) for bound in _BOUNDS), ("entries", _COUNT)]
)


def tables_of(rollup: Rollup) -> dict[str, pa.Table]:
    """All tables of figures but the comparison, and those of ids and faults."""
    slowest = rollup["slowest"]
    seconds = pa.array([micros / _MICROS for micros in slowest["micros"].to_pylist()], _SECONDS)
    return {
        "statistics": statistics(rollup, GROUPINGS),
        "failures": _sorted(rollup["failures"], "entries"),
        "retries": _sorted(rollup["retries"]),
        "lateness": _lateness(rollup["lateness"]),
        "redispatches": _sorted(rollup["redispatches"], "reaped"),
        "slowest": slowest.drop_columns("micros").append_column("seconds", seconds),
        "most_failing": rollup["most_failing"],
    }


def comparison(rollups: Mapping[str, Rollup]) -> pa.Table:
    """The statistics of several spans of time, in all and of each queue, by the span's name."""
    return comparison_of(rollups, lambda rollup: statistics(rollup, COMPARED))


def statistics(rollup: Rollup, groupings: Iterable[str]) -> pa.Table:
    """The statistics of some groupings, in this order, and by their keys."""
    chosen = {grouping: GROUPINGS[grouping] for grouping in groupings}
    found = group_statistics(rollup, GROUPED, COUNTED, chosen, MEASURES)
    for row in found:
        ran = row["processed"] + row["failed"]
        row["retry_percentage"] = row["retried"] * 100 / ran if ran else None
    return pa.Table.from_pylist(found, STATISTICS)


def _lateness(classes: pa.Table) -> pa.Table:
    bounds = [*pairwise((None, *LATENESS_SECONDS, None))]
    rows = [
        {
            "table_name": row["table_name"],
            "from_seconds": bounds[row["class"]][0],
            "to_seconds": bounds[row["class"]][1],
            "entries": row["entries"],
        }
        for row in _sorted(classes).to_pylist()
    ]
    return pa.Table.from_pylist(rows, _LATENESS)


def _sorted(table: pa.Table, most: str | None = None) -> pa.Table:
    """The rows by a column, the largest first, and then by all columns in order."""
    rows = sorted(
        table.to_pylist(),
        key=lambda row: [-row[most] if most else 0, *map(nulls_first, row.values())],
    )
    return pa.Table.from_pylist(rows, table.schema)
