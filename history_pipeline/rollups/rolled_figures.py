"""The tables of an audit by a roll-up, as `statistics` and `breakdowns` make them of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from history_pipeline.audits.figures import (
    COMPARED,
    GROUPINGS,
    KEYS,
    LATENESS_SECONDS,
    MEASURES,
    PERCENTS,
)
from history_pipeline.rollups.parts import Rollup
from history_pipeline.rollups.rollup_tables import COUNTED, COUNTS, GROUPED
from history_pipeline.rollups.sketch import percentiles

_MICROS = 1_000_000
_TEXT, _COUNT, _SECONDS = pa.string(), pa.int64(), pa.float64()
_COUNTS = dict.fromkeys(COUNTS, _COUNT) | {"retry_percentage": _SECONDS}
_TIMES = {
    f"{measure}_{figure}": _COUNT if figure == "count" else _SECONDS
    for measure in MEASURES
    for figure in ("count", "avg", "min", "max", *(f"p{percent}" for percent in PERCENTS))
}
STATISTICS = pa.schema(
    [COUNTED["counts"].schema.field(name) for name in ("grouping", *KEYS)]
    + [*_COUNTS.items(), *_TIMES.items()]
)
_BOUNDS = ("from_seconds", "to_seconds")
_LATENESS = pa.schema(
    [("table_name", _TEXT), *((bound, _SECONDS) for bound in _BOUNDS), ("entries", _COUNT)]
)

Row = Mapping[str, Any]


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
    tables = []
    for span, rollup in rollups.items():
        found = statistics(rollup, COMPARED)
        names = pa.repeat(pa.scalar(span, _TEXT), len(found))
        tables.append(found.add_column(0, "span", names))
    return pa.concat_tables(tables)


def statistics(rollup: Rollup, groupings: Iterable[str]) -> pa.Table:
    """The statistics of some groupings, in this order, and by their keys."""
    found = list[dict[str, Any]]()
    for grouping in groupings:
        keys = GROUPINGS[grouping]
        counts, times = (
            GROUPED.of(rollup[name], part, grouping, keys) for name, part in COUNTED.items()
        )
        sketches = _sketches(times)
        rows = [_row(row, sketches) for row in counts.to_pylist()]
        found += sorted(rows, key=lambda row: [_nulls_first(row[key]) for key in KEYS])
    return pa.Table.from_pylist(found, STATISTICS)


def _sketches(times: pa.Table) -> dict[tuple[Any, ...], tuple[Any, Any]]:
    """The buckets, ascending, and their counts, of each group (its keys and a measure)."""
    keys = [*KEYS, "measure"]
    codes = [_codes(times[key]) for key in keys]
    buckets, counts = times["bucket"].to_numpy(), times["entries"].to_numpy()
    order = np.lexsort((buckets, *reversed(codes)))
    ordered = np.stack([code[order] for code in codes])
    changes = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    starts = np.concatenate([[0], np.nonzero(changes)[0] + 1]) if len(order) else order
    groups = times.select(keys).take(pa.array(order[starts])).to_pylist()
    ends = [*starts[1:].tolist(), len(order)]
    return {
        tuple(group.values()): (buckets[order[start:end]], counts[order[start:end]])
        for group, start, end in zip(groups, starts.tolist(), ends, strict=False)
    }


def _codes(keys: pa.ChunkedArray) -> Any:
    encoded = keys.combine_chunks().dictionary_encode()
    return encoded.indices.fill_null(-1).to_numpy()


def _row(counts: Row, sketches: Mapping[tuple[Any, ...], tuple[Any, Any]]) -> dict[str, Any]:
    """A row of `STATISTICS`."""
    ran = counts["processed"] + counts["failed"]
    group = tuple(counts[key] for key in KEYS)
    found = dict(counts) | {"retry_percentage": counts["retried"] * 100 / ran if ran else None}
    for measure in MEASURES:
        timed = counts[f"{measure}_count"]
        if not timed:
            continue
        least, largest = counts[f"{measure}_min"], counts[f"{measure}_max"]
        shares = percentiles(*sketches[*group, measure], least, largest)
        found |= {
            f"{measure}_avg": counts[f"{measure}_total"] / (timed * _MICROS),
            f"{measure}_min": least / _MICROS,
            f"{measure}_max": largest / _MICROS,
            **{
                f"{measure}_p{percent}": share
                for percent, share in zip(PERCENTS, shares, strict=True)
            },
        }
    return found


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
        key=lambda row: [-row[most] if most else 0, *map(_nulls_first, row.values())],
    )
    return pa.Table.from_pylist(rows, table.schema)


def _nulls_first(value: Any) -> tuple[bool, Any]:
    return (value is not None, value)
