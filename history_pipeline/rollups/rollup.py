"""A roll-up of entries: the figures of some rows of history, which add up with those of others.

Counts are exact. Times are counted in the buckets of `sketch`. The ids are kept as ranges, and
rows of chains as they are, so that completeness can be judged without the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from history_pipeline.audits.figures import LATENESS_SECONDS, MEASURES
from history_pipeline.rollups.id_ranges import IdRanges
from history_pipeline.rollups.rolling import Rolling
from history_pipeline.rollups.rollup_tables import COUNTED, FIGURES, GROUPED
from history_pipeline.rollups.tallies import CHAINS, Rollup, ids_table, ones
from history_pipeline.rows.arrow_entries import entries
from history_pipeline.rows.arrow_schema import READ_SCHEMA
from history_pipeline.rows.kind import ENTRIES


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
    counts = _counts(rows, processed, failed)
    timed = rows.filter(rows["handler_micros"].is_valid())
    runs = {"error_count": "failed_runs", "redispatch_count": "redispatches"}
    others = {
        "failures": _counted(rows.filter(failed)),
        "retries": _counted(_renamed(rows.filter(ran), error_count="failed_runs")),
        "lateness": _counted(late.append_column("class", _classes(late["lateness_micros"]))),
        "redispatches": pa.table(
            {
                "node": reaped["node"],
                "reaped": ones(reaped),
                "first": reaped["finished_date"],
                "last": reaped["finished_date"],
            }
        ),
        "slowest": _renamed(timed, handler_micros="micros"),
        "most_failing": _renamed(ended, **runs),
    }
    return {
        "counts": GROUPED.counted(rows, counts, MEASURES, COUNTED["counts"]),
        "times": GROUPED.timed(rows, MEASURES, COUNTED["times"]),
        **{name: FIGURES[name].summed(table) for name, table in others.items()},
    }


def ids_of(rows: pa.Table) -> Rollup:
    """The ids and chains of rows of `arrow_entries.entries`, all of one main table."""
    terminal = compute.not_equal(rows["outcome"], "REAPED")
    unlinked = compute.and_(terminal, compute.equal(rows["chain_id"], rows["record_id"]))
    others = rows.append_column("terminal", terminal).filter(compute.invert(unlinked))
    ranges = IdRanges.of(rows.filter(unlinked)["record_id"].to_numpy())
    table = rows["table_name"][0].as_py() if len(rows) else ""
    return {"ids": ids_table(table, ranges), "chains": others.select(CHAINS.names).cast(CHAINS)}


ROLLED_ENTRIES = Rolling(ENTRIES, READ_SCHEMA, entries, figures_of, ids_of, FIGURES)


def _counts(rows: pa.Table, processed: Any, failed: Any) -> dict[str, Any]:
    errors = rows["error_count"].cast(pa.int64())
    # A failure that was final had no run after it.
    after = compute.max_element_wise(compute.subtract(errors, 1), pa.scalar(0, pa.int64()))
    retries = compute.if_else(processed, errors, compute.if_else(failed, after, 0))
    return {
        "processed": processed,
        "failed": failed,
        "removed": compute.equal(rows["outcome"], "REMOVED"),
        "reaped": compute.equal(rows["outcome"], "REAPED"),
        "ok": compute.and_(processed, compute.equal(errors, 0)),
        "retried": compute.greater(retries, 0),
        "retries": retries,
    }


def _counted(rows: pa.Table) -> pa.Table:
    return rows.append_column("entries", ones(rows))


def _classes(late: pa.ChunkedArray) -> pa.Array:
    """The place of each lateness among the classes that `LATENESS_SECONDS` parts."""
    bounds = np.array([round(seconds * 1_000_000) for seconds in LATENESS_SECONDS])
    return pa.array(np.searchsorted(bounds, late.to_numpy(), side="right"), pa.int32())


def _renamed(rows: pa.Table, **names: str) -> pa.Table:
    return rows.rename_columns([names.get(name, name) for name in rows.column_names])
