"""A roll-up: the figures of some rows of history, which add up with those of other rows.

Counts are exact. Times are counted in the buckets of `sketch`. The ids are kept as ranges, and
rows of chains as they are, so that completeness can be judged without the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from history_pipeline.audits.figures import (
    GROUPINGS,
    KEYS,
    LATENESS_SECONDS,
    MEASURES,
    STANDING_OUT,
)
from history_pipeline.rollups.id_ranges import IdRanges
from history_pipeline.rollups.rollup_tables import (
    CHAINS,
    GROUP,
    GROUPED,
    IDS,
    KEPT_GROUPINGS,
    KEY_TYPES,
    ORDERED,
    RANGE,
    SCHEMAS,
    Part,
    Rollup,
)
from history_pipeline.rollups.sketch import buckets

_TEXT, _COUNT = pa.string(), pa.int64()


def figures_of(rows: pa.Table) -> Rollup:
    """The figures of rows of `arrow_entries.entries`; without their ids."""
    outcome, errors = rows["outcome"], rows["error_count"]
    processed, failed = compute.equal(outcome, "PROCESSED"), compute.equal(outcome, "FAILED")
    ran = compute.or_(processed, failed)
    late = rows.filter(rows["lateness_micros"].is_valid())
    reaped = rows.filter(compute.equal(outcome, "REAPED"))
    ended = rows.filter(
        compute.and_(
            compute.not_equal(outcome, "REAPED"),
            compute.or_(compute.greater(errors, 0), compute.greater(rows["redispatch_count"], 0)),
        )
    )
    parts = {
        "counts": _counts(rows, processed, failed),
        "times": _times(rows),
        "failures": _counted(rows.filter(failed)),
        "retries": _counted(_renamed(rows.filter(ran), error_count="failed_runs")),
        "lateness": _counted(late.append_column("class", _classes(late["lateness_micros"]))),
        "redispatches": pa.table(
            {
                "node": reaped["node"],
                "reaped": _ones(reaped),
                "first": reaped["finished_date"],
                "last": reaped["finished_date"],
            }
        ),
    }
    found = {name: _grouped(table, GROUPED[name]) for name, table in parts.items()}
    timed = rows.filter(rows["handler_micros"].is_valid())
    found["slowest"] = _first(_renamed(timed, handler_micros="micros"), "slowest")
    runs = {"error_count": "failed_runs", "redispatch_count": "redispatches"}
    found["most_failing"] = _first(_renamed(ended, **runs), "most_failing")
    return found


def ids_of(rows: pa.Table) -> Rollup:
    """The ids and chains of rows of `arrow_entries.entries`, all of one main table."""
    terminal = compute.not_equal(rows["outcome"], "REAPED")
    alone = compute.and_(terminal, compute.equal(rows["chain_id"], rows["record_id"]))
    others = rows.append_column("terminal", terminal).filter(compute.invert(alone))
    ranges = IdRanges.of(rows.filter(alone)["record_id"].to_numpy())
    table = rows["table_name"][0].as_py() if len(rows) else ""
    return {"ids": _ids_table(table, ranges), "chains": others.select(CHAINS.names).cast(CHAINS)}


def merged(rollups: Iterable[Rollup], names: Iterable[str] = SCHEMAS) -> Rollup:
    """The roll-up of all rows of some roll-ups, or some tables of it."""
    given = list(rollups)
    found = Rollup()
    for name in names:
        tables = [SCHEMAS[name].empty_table(), *(rollup[name] for rollup in given)]
        table = pa.concat_tables(tables)
        if name in GROUPED:
            table = _grouped(table, GROUPED[name])
        elif name in ORDERED:
            table = _first(table, name)
        elif name == "ids":
            table = pa.concat_tables(
                [IDS.empty_table(), *(_ids_table(*one) for one in ranges_by_table(table).items())]
            )
        found[name] = table
    return found


def of_grouping(table: pa.Table, name: str, grouping: str) -> pa.Table:
    """The rows of one of `GROUPINGS` in the table `counts` or `times` of a roll-up."""
    kept = grouping if grouping in KEPT_GROUPINGS else "event_type"
    rows = table.filter(compute.equal(table["grouping"], kept))
    if kept == grouping:
        return rows
    groups = {
        key: rows[key] if key in GROUPINGS[grouping] else pa.nulls(len(rows), kind)
        for key, kind in KEY_TYPES
    }
    others = {key: rows[key] for key in table.column_names[len(GROUP) :]}
    names = {"grouping": pa.repeat(pa.scalar(grouping), len(rows))}
    return _grouped(pa.table(names | groups | others), GROUPED[name])


def ranges_by_table(ids: pa.Table) -> dict[str, IdRanges]:
    """The ranges of a table of `IDS`, put together, by main table."""
    found = dict[str, IdRanges]()
    for table in compute.unique(ids["table_name"]).to_pylist():
        own = ids.filter(compute.equal(ids["table_name"], table))
        found[table] = IdRanges.summed(*(own[name].to_numpy() for name in RANGE))
    return found


def _counts(rows: pa.Table, processed: Any, failed: Any) -> pa.Table:
    errors = rows["error_count"].cast(pa.int64())
    # A failure that was final had no run after it.
    after = compute.max_element_wise(compute.subtract(errors, 1), pa.scalar(0, pa.int64()))
    retries = compute.if_else(processed, errors, compute.if_else(failed, after, 0))
    columns = {
        "processed": processed,
        "failed": failed,
        "removed": compute.equal(rows["outcome"], "REMOVED"),
        "reaped": compute.equal(rows["outcome"], "REAPED"),
        "ok": compute.and_(processed, compute.equal(errors, 0)),
        "retried": compute.greater(retries, 0),
        "retries": retries,
    }
    for measure in MEASURES:
        micros = rows[f"{measure}_micros"]
        columns |= {
            f"{measure}_count": micros.is_valid(),
            f"{measure}_total": micros.cast(pa.float64()),
            f"{measure}_min": micros,
            f"{measure}_max": micros,
        }
    part = GROUPED["counts"]
    counted = {name: column.cast(part.values[name][0]) for name, column in columns.items()}
    return _by_grouping(pa.table({**{key: rows[key] for key in KEYS}, **counted}), part)


def _times(rows: pa.Table) -> pa.Table:
    tables = []
    for measure in MEASURES:
        timed = rows.filter(rows[f"{measure}_micros"].is_valid())
        columns = {key: timed[key] for key in KEYS} | {
            "measure": pa.repeat(pa.scalar(measure), len(timed)),
            "bucket": pa.array(buckets(timed[f"{measure}_micros"]), pa.int32()),
            "entries": _ones(timed),
        }
        tables.append(_by_grouping(pa.table(columns), GROUPED["times"]))
    return pa.concat_tables(tables)


def _by_grouping(rows: pa.Table, part: Part) -> pa.Table:
    """The rows of each of `KEPT_GROUPINGS`, grouped."""
    found = []
    for grouping in KEPT_GROUPINGS:
        kept = GROUPINGS[grouping]
        keys = [
            *(key for key in part.keys if key[0] in kept),
            *part.keys[len(GROUP) :],
        ]
        grouped = _grouped(rows, Part(keys, part.values))
        of_group = {"grouping": pa.repeat(pa.scalar(grouping), len(grouped))} | {
            key: grouped[key] if key in kept else pa.nulls(len(grouped), kind)
            for key, kind in KEY_TYPES
        }
        others = {name: grouped[name] for name in part.schema.names[len(GROUP) :]}
        found.append(pa.table(of_group | others, schema=part.schema))
    return pa.concat_tables(found)


def _grouped(rows: pa.Table, part: Part) -> pa.Table:
    keys = [name for name, _ in part.keys]
    chosen = rows.select([*keys, *part.values])
    aggregates = [(name, how) for name, (_, how) in part.values.items()]
    grouped = chosen.group_by(keys).aggregate(aggregates)
    named = {f"{name}_{how}": name for name, how in aggregates}
    grouped = grouped.rename_columns([named.get(name, name) for name in grouped.column_names])
    return grouped.select(part.schema.names).cast(part.schema)


def _counted(rows: pa.Table) -> pa.Table:
    return rows.append_column("entries", _ones(rows))


def _ones(rows: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(1, _COUNT), len(rows))


def _classes(late: pa.ChunkedArray) -> pa.Array:
    """The place of each lateness among the classes that `LATENESS_SECONDS` parts."""
    bounds = np.array([round(seconds * 1_000_000) for seconds in LATENESS_SECONDS])
    return pa.array(np.searchsorted(bounds, late.to_numpy(), side="right"), pa.int32())


def _first(rows: pa.Table, name: str) -> pa.Table:
    schema, order = ORDERED[name]
    chosen = rows.select(schema.names).cast(schema)
    if len(chosen) > STANDING_OUT:
        by, _ = order[0]
        # Sorting all of them by all keys would take most of the time.
        place = compute.select_k_unstable(chosen, STANDING_OUT, [order[0]])
        least = chosen[by][place[-1].as_py()]
        chosen = chosen.filter(compute.greater_equal(chosen[by], least))
    return chosen.sort_by(list(order)).slice(0, STANDING_OUT)


def _renamed(rows: pa.Table, **names: str) -> pa.Table:
    return rows.rename_columns([names.get(name, name) for name in rows.column_names])


def _ids_table(table: str, ranges: IdRanges) -> pa.Table:
    names = pa.repeat(pa.scalar(table, _TEXT), len(ranges.first))
    columns = dict(zip(RANGE, ranges, strict=True))
    return pa.table({"table_name": names, **columns}, schema=IDS)
