"""A roll-up of tasks: the figures of some rows of their history, which add up."""

from __future__ import annotations

import pyarrow as pa

from history_pipeline.audits.figures import COMPARED
from history_pipeline.audits.task_figures import TASK_COUNTS, TASK_GROUPINGS, TASK_MEASURES
from history_pipeline.rollups.group_statistics import group_statistics, time_fields
from history_pipeline.rollups.id_ranges import IdRanges
from history_pipeline.rollups.rolling import Rolling
from history_pipeline.rollups.tallies import (
    CHAINS,
    COUNT,
    DATE,
    TEXT,
    Grouped,
    Groupings,
    Rollup,
    ids_table,
    ones,
)
from history_pipeline.rows.arrow_tasks import TASK_READ_SCHEMA, tasks
from history_pipeline.rows.kind import TASKS

_KEYS = [("queue_name", TEXT), ("error_type", TEXT), ("claimant", TEXT), ("hour", DATE)]
_OF_ALL = Grouped(_KEYS, {name: TASK_GROUPINGS[name] for name in ("queue", "claimant", "hour")})
_OF_ERRORS = Grouped(_KEYS, {"error": TASK_GROUPINGS["error"]})
_GROUPED = Grouped(_KEYS, {**_OF_ALL.groupings, **_OF_ERRORS.groupings})
_TALLIES = {"counts": _GROUPED.counts(TASK_COUNTS, TASK_MEASURES), "times": _GROUPED.times()}
_COLUMNS = [
    ("grouping", TEXT),
    *_KEYS,
    *((name, COUNT) for name in TASK_COUNTS),
    *time_fields(TASK_MEASURES).items(),
]


def task_statistics(rollup: Rollup) -> pa.Table:
    """The statistics of all groupings."""
    return _statistics(rollup, TASK_GROUPINGS)


def compared_statistics(rollup: Rollup) -> pa.Table:
    """The statistics of all tasks, and of each queue."""
    return _statistics(rollup, {name: TASK_GROUPINGS[name] for name in COMPARED})


def _statistics(rollup: Rollup, groupings: Groupings) -> pa.Table:
    found = group_statistics(rollup, _GROUPED, _TALLIES, groupings, TASK_MEASURES)
    return pa.Table.from_pylist(found, pa.schema(_COLUMNS))


def _figures_of(rows: pa.Table) -> Rollup:
    counts, times = [], []
    for grouped, chosen in ((_OF_ALL, rows), (_OF_ERRORS, rows.filter(rows["with_error"]))):
        columns = {"tasks": ones(chosen)} | {name: chosen[name] for name in TASK_COUNTS[1:]}
        counts.append(grouped.counted(chosen, columns, TASK_MEASURES, _TALLIES["counts"]))
        times.append(grouped.timed(chosen, TASK_MEASURES, _TALLIES["times"]))
    return {"counts": pa.concat_tables(counts), "times": pa.concat_tables(times)}


def _ids_of(rows: pa.Table) -> Rollup:
    ranges = IdRanges.of(rows["record_id"].to_numpy())
    return {"ids": ids_table(TASKS.archive_name(""), ranges), "chains": CHAINS.empty_table()}


ROLLED_TASKS = Rolling(TASKS, TASK_READ_SCHEMA, tasks, _figures_of, _ids_of, _TALLIES)
