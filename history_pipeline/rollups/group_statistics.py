"""Statistics of groups, by the counts and buckets of a roll-up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from history_pipeline.audits.figures import PERCENTS
from history_pipeline.rollups.sketch import percentiles
from history_pipeline.rollups.tallies import Grouped, Groupings, Rollup, Tally

_Sketches = Mapping[tuple[Any, ...], tuple[Any, Any]]
"""The buckets, ascending, and their counts, of each group: its keys and a measure."""

_MICROS = 1_000_000
"""Microseconds of a second."""
_TALLIES = ("counts", "times")
_FIGURES = ("count", "avg", "min", "max", *(f"p{percent}" for percent in PERCENTS))


def time_fields(measures: Iterable[str]) -> dict[str, pa.DataType]:
    """The columns of measured times, with their types."""
    return {
        f"{measure}_{figure}": pa.int64() if figure == "count" else pa.float64()
        for measure in measures
        for figure in _FIGURES
    }


def group_statistics(
    rollup: Rollup,
    grouped: Grouped,
    tallies: Mapping[str, Tally],
    groupings: Groupings,
    measures: Sequence[str],
) -> list[dict[str, Any]]:
    """The statistics of some groupings, in this order, and by their keys, nulls first.

    `tallies` are the table `counts` and the table `times` of the roll-up. A row has all that is
    counted, and the figures of its measured times, so far as something was timed.
    """
    found, keys = list[dict[str, Any]](), [key for key, _ in grouped.keys]
    for grouping, own in groupings.items():
        counts, times = (
            grouped.of(rollup[name], tallies[name], grouping, own) for name in _TALLIES
        )
        buckets = _sketches(times, keys)
        rows = [
            row
            | {name: of for measure in measures for name, of in _times(row, keys, measure, buckets)}
            for row in counts.to_pylist()
        ]
        found += sorted(rows, key=lambda row: [nulls_first(row[key]) for key in keys])
    return found


def comparison_of(
    rollups: Mapping[str, Rollup], statistics: Callable[[Rollup], pa.Table]
) -> pa.Table:
    """The statistics of several spans of time, with the name of the span."""
    tables = []
    for span, rollup in rollups.items():
        found = statistics(rollup)
        names = pa.repeat(pa.scalar(span, pa.string()), len(found))
        tables.append(found.add_column(0, "span", names))
    return pa.concat_tables(tables)


def nulls_first(value: Any) -> tuple[bool, Any]:
    """What a value is sorted by, if None comes first."""
    return (value is not None, value)


def _times(
    counts: Mapping[str, Any], keys: Sequence[str], measure: str, found: _Sketches
) -> Iterator[tuple[str, float]]:
    """The figures of a measure of one group, but its count; none if nothing was timed."""
    timed = counts[f"{measure}_count"]
    if not timed:
        return
    least, largest = counts[f"{measure}_min"], counts[f"{measure}_max"]
    group = (*(counts[key] for key in keys), measure)
    yield f"{measure}_avg", counts[f"{measure}_total"] / (timed * _MICROS)
    yield f"{measure}_min", least / _MICROS
    yield f"{measure}_max", largest / _MICROS
    shares = percentiles(*found[group], least, largest)
    for percent, share in zip(PERCENTS, shares, strict=True):
        yield f"{measure}_p{percent}", share


def _sketches(times: pa.Table, keys: Sequence[str]) -> _Sketches:
    keys = [*keys, "measure"]
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
