"""An archive as DuckDB sees it: its files, and all figures of a report by SQL over them.

Nothing of the pipeline takes part, neither to find the files nor to read or count their rows.
`docs/reference/statistics.md` defines the figures.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

Rows = list[dict[str, Any]]

_ENTRIES = """
CREATE VIEW entries AS
SELECT record_id,
       coalesce(origin_id, record_id) AS chain_id,
       'bus_events' AS table_name,
       queue_name,
       class_name,
       CASE processing_state WHEN 'REAPED' THEN nullif(lane, '') ELSE processing_owner END AS node,
       date_trunc('hour', finished_date) AS hour,
       processing_state AS outcome,
       error_count AS failed_runs,
       redispatch_count AS redispatches,
       finished_date,
       CASE outcome WHEN 'PROCESSED' THEN error_count
                    WHEN 'FAILED' THEN greatest(error_count - 1, 0)
                    ELSE 0 END AS retries,
       error_count > (outcome = 'FAILED')::INT AS ran_before,
       epoch_us(finished_date) - epoch_us(started_date) AS handler,
       CASE WHEN NOT ran_before AND effective_date <= created_date
            THEN epoch_us(started_date) - epoch_us(created_date) END AS start_latency,
       CASE WHEN NOT ran_before AND effective_date > created_date
            THEN epoch_us(started_date) - epoch_us(effective_date) END AS lateness,
       CASE outcome WHEN 'FAILED'
            THEN left(split_part(split_part(last_error, chr(10), 1), ':', 1), 80) END AS error_type
FROM history
"""
_PERIOD = """
CREATE MACRO within(since, until) AS TABLE
SELECT * FROM entries
WHERE (since IS NULL OR finished_date >= since::TIMESTAMPTZ)
  AND (until IS NULL OR finished_date < until::TIMESTAMPTZ)
"""
_TIMES = ",\n".join(
    f"""
    count({name}) AS {name}_count,
    sum({name}) / (count({name}) * 1e6) AS {name}_avg,
    min({name}) / 1e6 AS {name}_min,
    max({name}) / 1e6 AS {name}_max,
    quantile_cont({name}, 0.50) / 1e6 AS {name}_p50,
    quantile_cont({name}, 0.90) / 1e6 AS {name}_p90,
    quantile_cont({name}, 0.95) / 1e6 AS {name}_p95,
    quantile_cont({name}, 0.99) / 1e6 AS {name}_p99"""
    for name in ("handler", "start_latency", "lateness")
)
_STATISTICS = f"""
SELECT CASE grouping_id(queue_name, class_name, node, hour)
            WHEN 15 THEN 'total' WHEN 7 THEN 'queue' WHEN 3 THEN 'event_type'
            WHEN 13 THEN 'node' WHEN 14 THEN 'hour' END AS "grouping",
       CASE WHEN grouping_id(queue_name) = 0 THEN any_value(table_name) END AS table_name,
       queue_name, class_name, node, hour,
       count(*) FILTER (outcome = 'PROCESSED') AS processed,
       count(*) FILTER (outcome = 'FAILED') AS failed,
       count(*) FILTER (outcome = 'REMOVED') AS removed,
       count(*) FILTER (outcome = 'REAPED') AS reaped,
       count(*) FILTER (outcome = 'PROCESSED' AND failed_runs = 0) AS ok,
       count(*) FILTER (retries > 0) AS retried,
       sum(retries) AS retries,
       count(*) FILTER (retries > 0) * 100
           / nullif(count(*) FILTER (outcome IN ('PROCESSED', 'FAILED')), 0) AS retry_percentage,
       {_TIMES}
FROM within($since, $until)
GROUP BY GROUPING SETS ((), (queue_name), (queue_name, class_name), (node), (hour))
ORDER BY list_position(['total', 'queue', 'event_type', 'node', 'hour'], "grouping"),
         queue_name NULLS FIRST, class_name NULLS FIRST, node NULLS FIRST, hour NULLS FIRST
"""  # noqa: S608 -- of constants
_FAILURES = """
SELECT table_name, queue_name, class_name, error_type, count(*) AS entries
FROM within($since, $until) WHERE outcome = 'FAILED'
GROUP BY ALL ORDER BY entries DESC, queue_name, class_name, error_type NULLS FIRST
"""
_RETRIES = """
SELECT table_name, failed_runs, outcome, count(*) AS entries
FROM within($since, $until) WHERE outcome IN ('PROCESSED', 'FAILED')
GROUP BY ALL ORDER BY failed_runs, outcome
"""
_LATENESS = """
WITH bounds(from_seconds, to_seconds) AS (VALUES
    (NULL, 0.01), (0.01, 0.1), (0.1, 1), (1, 10), (10, 60),
    (60, 600), (600, 3600), (3600, 86400), (86400, NULL))
SELECT table_name, from_seconds::DOUBLE AS from_seconds, to_seconds::DOUBLE AS to_seconds,
       count(*) AS entries
FROM within($since, $until) JOIN bounds
  ON lateness >= coalesce(from_seconds * 1000000, lateness)
 AND lateness < coalesce(to_seconds * 1000000, lateness + 1)
GROUP BY ALL ORDER BY from_seconds NULLS FIRST
"""
_REDISPATCHES = """
SELECT node, count(*) AS reaped, min(finished_date) AS first, max(finished_date) AS last
FROM within($since, $until) WHERE outcome = 'REAPED'
GROUP BY node ORDER BY reaped DESC, node NULLS FIRST
"""
_SLOWEST = """
SELECT table_name, record_id, queue_name, class_name, node, outcome, finished_date,
       handler / 1e6 AS seconds
FROM within($since, $until) WHERE handler IS NOT NULL
ORDER BY handler DESC, record_id LIMIT 20
"""
_MOST_FAILING = """
SELECT table_name, record_id, queue_name, class_name, node, outcome, finished_date,
       failed_runs, redispatches, error_type
FROM within($since, $until) WHERE outcome != 'REAPED' AND (failed_runs > 0 OR redispatches > 0)
ORDER BY failed_runs DESC, redispatches DESC, record_id LIMIT 20
"""
_GAPS = """
SELECT table_name, before + 1 AS first_id, record_id - 1 AS last_id,
       record_id - before - 1 AS missing
FROM (SELECT table_name, record_id, lag(record_id) OVER (ORDER BY record_id) AS before FROM entries)
WHERE missing > 0 ORDER BY missing DESC, first_id LIMIT 100
"""
_FAULTS = """
SELECT table_name, chain_id AS record_id, 'ended_twice' AS fault
FROM entries WHERE outcome != 'REAPED'
GROUP BY ALL HAVING count(*) > 1 ORDER BY record_id
"""
_TABLES = """
SELECT any_value(table_name) AS table_name, NULL AS live, NULL AS history, count(*) AS archived,
       min(record_id) AS lowest_id, max(record_id) AS highest_id,
       highest_id - lowest_id + 1 - count(DISTINCT record_id) AS missing_ids,
       (SELECT count(*) FROM (SELECT record_id - lag(record_id) OVER (ORDER BY record_id) AS step
                              FROM entries) WHERE step > 1) AS gaps
FROM entries
"""
_OF_PERIOD = {
    "statistics": _STATISTICS,
    "failures": _FAILURES,
    "retries": _RETRIES,
    "lateness": _LATENESS,
    "redispatches": _REDISPATCHES,
    "slowest": _SLOWEST,
    "most_failing": _MOST_FAILING,
}
_OF_ALL = {"gaps": _GAPS, "faults": _FAULTS, "tables": _TABLES}


def files_of(folder: Path) -> list[dict[str, Any]]:
    """The files that an archive of a table consists of, as its manifests describe them."""
    manifests = [json.loads(path.read_bytes()) for path in sorted(folder.glob("manifests/*.json"))]
    replaced = {path for manifest in manifests for path in manifest["replaces"]}
    return [
        file for manifest in manifests for file in manifest["files"] if file["path"] not in replaced
    ]


class ArchiveSQL:
    """The archive of a table, which its folder holds, as the view `history` of DuckDB."""

    def __init__(self, folder: Path) -> None:
        self._connection = duckdb.connect(config={"threads": 2})
        paths = [str(folder / file["path"]).replace("'", "''") for file in files_of(folder)]
        files = ", ".join(f"'{path}'" for path in paths)
        for statement in (
            "SET TimeZone = 'UTC'",
            f"CREATE VIEW history AS FROM read_parquet([{files}], hive_partitioning = false)",
            _ENTRIES,
            _PERIOD,
        ):
            self._connection.execute(statement)

    def close(self) -> None:
        """Forget all of it."""
        self._connection.close()

    def rows(self, statement: str, **given: Any) -> Rows:
        """The rows that a statement finds, by the names of its columns."""
        found = self._connection.execute(statement, given or None)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def columns(self) -> dict[str, list[Any]]:
        """The columns of history by name, each with its values in the order of the ids."""
        found = self._connection.execute("SELECT * FROM history ORDER BY record_id")
        names = [column[0] for column in found.description]
        values = zip(*found.fetchall(), strict=True)
        return {name: [*column] for name, column in zip(names, values, strict=True)}

    def figures(self, until: datetime) -> dict[str, Rows]:
        """The tables of a report on entries that ended before `until`, by their names."""
        found = {
            name: self.rows(statement, since=None, until=until)
            for name, statement in _OF_PERIOD.items()
        }
        return found | {
            "comparison": [*self._compared(until)],
            **{name: self.rows(statement) for name, statement in _OF_ALL.items()},
        }

    def _compared(self, until: datetime) -> Rows:
        """The statistics of the last whole day before `until`, and of the week before that day."""
        today = until.replace(hour=0, minute=0, second=0, microsecond=0)
        yesterday = today - timedelta(days=1)
        spans = {
            "yesterday": (yesterday, today),
            "week_before": (yesterday - timedelta(days=7), yesterday),
        }
        return [
            {"span": span, **row}
            for span, (since, before) in spans.items()
            for row in self.rows(_STATISTICS, since=since, until=before)
            if row["grouping"] in {"total", "queue"}
        ]
