"""Figures of a history by plain Python, from the definitions in `docs/reference/statistics.md`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from statistics import quantiles
from typing import Any

Row = Mapping[str, Any]


def seconds(micros: int | Fraction) -> float:
    return float(Fraction(micros) / 1_000_000)


def micros(later: datetime, earlier: datetime) -> int:
    return (later - earlier) // timedelta(microseconds=1)


def percentile(values: Iterable[int], percent: int) -> float:
    """By the standard library, exactly."""
    found = [Fraction(value) for value in values]
    return seconds(
        found[0] if len(found) == 1 else quantiles(found, n=100, method="inclusive")[percent - 1]
    )


def measured(row: Row, measure: str) -> int | None:
    """Microseconds, or None if the row says nothing of it."""
    if row["started_date"] is None:
        return None
    if measure == "handler":
        return micros(row["finished_date"], row["started_date"])
    if row["error_count"] > (row["processing_state"] == "FAILED"):
        return None
    scheduled = row["effective_date"] > row["created_date"]
    if scheduled is not (measure == "lateness"):
        return None
    return micros(row["started_date"], row["effective_date"] if scheduled else row["created_date"])


def retries(row: Row) -> int:
    match row["processing_state"]:
        case "PROCESSED":
            return int(row["error_count"])
        case "FAILED":
            return max(0, int(row["error_count"]) - 1)
        case _:
            return 0


def figures(rows: Sequence[Row]) -> dict[str, Any]:
    """All figures of one group."""
    states = [row["processing_state"] for row in rows]
    found: dict[str, Any] = {
        state.lower(): states.count(state) for state in ("PROCESSED", "FAILED", "REMOVED", "REAPED")
    }
    found["ok"] = sum(
        row["processing_state"] == "PROCESSED" and not row["error_count"] for row in rows
    )
    found["retried"] = sum(retries(row) > 0 for row in rows)
    found["retries"] = sum(map(retries, rows))
    ran = found["processed"] + found["failed"]
    found["retry_percentage"] = float(Fraction(100 * found["retried"], ran)) if ran else None
    for measure in ("handler", "start_latency", "lateness"):
        values = [value for row in rows if (value := measured(row, measure)) is not None]
        found[f"{measure}_count"] = len(values)
        found[f"{measure}_avg"] = seconds(Fraction(sum(values), len(values))) if values else None
        found[f"{measure}_min"] = seconds(min(values)) if values else None
        found[f"{measure}_max"] = seconds(max(values)) if values else None
        for percent in (50, 90, 95, 99):
            found[f"{measure}_p{percent}"] = percentile(values, percent) if values else None
    return found


def node(row: Row) -> str | None:
    return (row["lane"] or None) if row["processing_state"] == "REAPED" else row["processing_owner"]


def hour(row: Row) -> datetime:
    finished: datetime = row["finished_date"]
    return finished.replace(minute=0, second=0, microsecond=0)


def statistics(
    rows: Sequence[Row], table: str
) -> dict[tuple[str, tuple[Any, ...]], dict[str, Any]]:
    """Return the figures of each group, by the grouping's name and its keys that are not None."""
    groups: dict[tuple[str, tuple[Any, ...]], list[Row]] = {}
    for row in rows:
        queue, kind = row["queue_name"], row["class_name"]
        for grouping, keys in (
            ("total", (None, None, None, None, None)),
            ("queue", (table, queue, None, None, None)),
            ("event_type", (table, queue, kind, None, None)),
            ("node", (None, None, None, node(row), None)),
            ("hour", (None, None, None, None, hour(row))),
        ):
            groups.setdefault((grouping, keys), []).append(row)
    return {group: figures(members) for group, members in groups.items()}
