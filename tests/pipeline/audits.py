"""Audits made by plain Python of a random history, as Spark would make them.

Tests of the page need no Spark with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa

from history_pipeline import Audit
from history_pipeline.audits.figures import FAULTS_SCHEMA, TABLES_SCHEMA, TableAudit
from history_pipeline.period import compared
from tests.pipeline import oracle
from tests.pipeline.random_history import random_history

MADE = datetime(2026, 3, 2, 9, 30, 0, 5, tzinfo=UTC)
TABLE = "bus_events"
_BOUNDS = (None, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 86_400.0, None)


def audit_of(
    rows: Sequence[Mapping[str, Any]],
    *,
    faults: Mapping[str, int] | None = None,
    database: str = "sqlite",
) -> Audit:
    """The audit of a history that was read with its live entries."""
    ids = [row["record_id"] for row in rows]
    table = TableAudit(
        TABLE, 0, len(rows), None, min(ids, default=None), max(ids, default=None), 0, 0
    )
    statistics = [
        {
            "grouping": grouping,
            **dict(
                zip(("table_name", "queue_name", "class_name", "node", "hour"), keys, strict=True)
            ),
            **figures,
        }
        for (grouping, keys), figures in oracle.statistics([*rows], TABLE).items()
    ]
    comparison = [
        {
            "span": span,
            "grouping": grouping,
            **dict(
                zip(("table_name", "queue_name", "class_name", "node", "hour"), keys, strict=True)
            ),
            **figures,
        }
        for span, (since, until) in compared(MADE).items()
        for (grouping, keys), figures in oracle.statistics(
            [row for row in rows if since <= row["finished_date"] < until], TABLE
        ).items()
        if grouping in {"total", "queue"}
    ]
    failed = [row for row in rows if row["processing_state"] == "FAILED"]
    ran = [row for row in rows if row["processing_state"] in {"PROCESSED", "FAILED"}]
    failures = Counter((row["queue_name"], row["class_name"], _error(row)) for row in failed)
    retries = Counter((row["error_count"], row["processing_state"]) for row in ran)
    lateness = Counter(
        _class(micros) for row in rows if (micros := oracle.measured(row, "lateness")) is not None
    )
    timed = [
        (micros, row) for row in rows if (micros := oracle.measured(row, "handler")) is not None
    ]
    slowest = sorted(timed, key=lambda one: -one[0])[:20]
    failing = sorted(ran, key=lambda row: -row["error_count"])[:20]
    reaped = Counter(row["lane"] for row in rows if row["processing_state"] == "REAPED")
    tables: dict[str, list[dict[str, Any]]] = {
        "statistics": statistics,
        "comparison": comparison,
        "failures": [
            {
                "table_name": TABLE,
                "queue_name": queue,
                "class_name": kind,
                "error_type": error,
                "entries": count,
            }
            for (queue, kind, error), count in failures.most_common()
        ],
        "retries": [
            {"table_name": TABLE, "failed_runs": runs, "outcome": outcome, "entries": count}
            for (runs, outcome), count in sorted(retries.items())
        ],
        "lateness": [
            {"table_name": TABLE, "from_seconds": lower, "to_seconds": upper, "entries": count}
            for (lower, upper), count in sorted(lateness.items(), key=lambda one: one[0][0] or 0.0)
        ],
        "redispatches": [
            {"node": node or None, "reaped": count, "first": MADE, "last": MADE}
            for node, count in reaped.most_common()
        ],
        "slowest": [{**_entry(row), "seconds": micros / 1_000_000} for micros, row in slowest],
        "most_failing": [
            {
                **_entry(row),
                "failed_runs": row["error_count"],
                "redispatches": row["redispatch_count"],
                "error_type": _error(row),
            }
            for row in failing
        ],
        "gaps": [],
    }
    listed = [
        {"table_name": TABLE, "record_id": place, "fault": fault}
        for fault, count in (faults or {}).items()
        for place in range(count)
    ]
    return Audit(
        made=MADE,
        database=database,
        database_name="shop",
        archive=None,
        audited=(table,),
        faults={"no_end": 0, "ended_twice": 0, "ended_and_live": 0} | dict(faults or {}),
        tables={
            **{name: pa.Table.from_pylist(found) for name, found in tables.items()},
            "faults": pa.Table.from_pylist(listed, FAULTS_SCHEMA),
            "tables": pa.Table.from_pylist([asdict(table)], TABLES_SCHEMA),
        },
    )


def random_audit(seed: int, size: int) -> Audit:
    """The audit of `random_history`."""
    return audit_of(random_history(seed, size))


def _error(row: Mapping[str, Any]) -> str | None:
    text = row["last_error"]
    return None if text is None else str(text).partition("\n")[0].partition(":")[0]


def _class(micros: int) -> tuple[float | None, float | None]:
    return next(
        (lower, upper)
        for lower, upper in pairwise(_BOUNDS)
        if (lower is None or micros >= lower * 1_000_000)
        and (upper is None or micros < upper * 1_000_000)
    )


def _entry(row: Mapping[str, Any]) -> dict[str, Any]:
    names = ("record_id", "queue_name", "class_name", "finished_date")
    entry = {name: row[name] for name in names}
    return {
        "table_name": TABLE,
        **entry,
        "node": row["processing_owner"],
        "outcome": row["processing_state"],
    }
