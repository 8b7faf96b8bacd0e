"""The page of the report, which needs no other file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from history_pipeline.audits.figures import Audit
from history_pipeline.period import compared
from history_pipeline.reports import plots
from history_pipeline.reports.alarm import ALARMING_SHARE, risen
from history_pipeline.reports.drawing import OUTCOMES
from history_pipeline.reports.template import NO_NAME, period_words, precision, rendered
from history_pipeline.reports.verdict import verdict
from history_pipeline.reports.wording import duration, percentage

_MOST_FAILED_RUNS = 6
"""From this number on, failed runs share one bar."""

Row = Mapping[str, Any]


def render(audit: Audit) -> str:
    """The page as HTML. Every name in it is escaped; it loads nothing and runs nothing."""
    statistics = _by_grouping(audit.rows("statistics"))
    total = statistics["total"][0] if statistics["total"] else None
    now = audit.period.until or audit.made
    return rendered(
        "report.html.j2",
        title="Stickybus report",
        audit=audit,
        verdict=verdict(audit),
        period=period_words(audit.period, audit.made, statistics["hour"], "entries"),
        precision=precision(audit.percentile_error),
        total=total,
        statistics=statistics,
        comparison=_comparison(audit.rows("comparison")),
        days=[f"{compared(now)['yesterday'].since:%Y-%m-%d}"],
        alarming=percentage(round(ALARMING_SHARE * 100), 100),
        rows=audit.rows,
        drawn=_plots(audit, statistics),
        step=plots.step_name(statistics["hour"]),
        several=len(audit.audited) > 1,
    )


def _comparison(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Yesterday and the week before it, of all entries first, then of each queue, most first."""
    nothing = {"processed": 0, "failed": 0, "removed": 0, "reaped": 0, "retried": 0}
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        of = {name: row[name] for name in ("grouping", "table_name", "queue_name")}
        spans = found.setdefault(tuple(of.values()), of)
        spans["day" if row["span"] == "yesterday" else "week"] = _judged(row)
    times = {f"{measure}_p99": None for measure in ("handler", "start_latency", "lateness")}
    pairs = [
        {"day": _judged(nothing | times), "week": _judged(nothing | times), **pair}
        for pair in found.values()
    ]
    for pair in pairs:
        pair["risen"] = risen(pair["day"], pair["week"])
    return sorted(
        (pair for pair in pairs if pair["day"]["ended"] or pair["week"]["ended"]),
        key=lambda pair: (
            pair["grouping"] != "total",
            -pair["day"]["ended"],
            -pair["week"]["ended"],
        ),
    )


def _judged(row: Row) -> dict[str, Any]:
    """A row of statistics with how many of its entries ran, and how many ended."""
    ran = row["processed"] + row["failed"]
    return {**row, "ran": ran, "ended": ran + row["removed"]}


def _by_grouping(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The statistics by grouping; all but the hours by how many entries there were, most first."""
    found: dict[str, list[Row]] = {
        name: [] for name in ("total", "queue", "event_type", "node", "hour")
    }
    for row in rows:
        found[row["grouping"]].append(_judged(row))
    for grouping, members in found.items():
        if grouping != "hour":
            members.sort(key=_entries, reverse=True)
    return found


def _entries(row: Row) -> int:
    return sum(row[outcome] for outcome in OUTCOMES)


def _plots(audit: Audit, statistics: Mapping[str, Sequence[Row]]) -> dict[str, plots.Plot | None]:
    queues = statistics["queue"]
    failures = audit.rows("failures")
    types = _summed(failures, lambda row: row["class_name"])
    errors = _summed(failures, lambda row: row["error_type"] or NO_NAME)
    classes = sorted(audit.rows("lateness"), key=lambda row: row["from_seconds"] or 0.0)
    late = _summed(classes, lambda row: _class(row["from_seconds"], row["to_seconds"]))
    retried = _retried(audit.rows("retries"))
    return {
        "throughput": plots.throughput(statistics["hour"]),
        "starts": plots.latencies("starts", queues, "start_latency"),
        "late": plots.latencies("late", queues, "lateness"),
        "handlers": plots.latencies("handlers", queues, "handler"),
        "failures": plots.bars(
            "failures",
            _most_first(types),
            {"failed": sorted(types.values(), reverse=True)},
            legend=False,
        ),
        "errors": plots.bars(
            "errors",
            _most_first(errors),
            {"failed": sorted(errors.values(), reverse=True)},
            legend=False,
        ),
        "lateness": plots.bars("lateness", [*late], {"p90": [*late.values()]}, legend=False),
        "retries": plots.bars(
            "retries",
            [
                f"{runs} failed" if runs < _MOST_FAILED_RUNS else f"{runs} or more"
                for runs in retried
            ],
            {
                "processed": [found.get("PROCESSED", 0) for found in retried.values()],
                "failed": [found.get("FAILED", 0) for found in retried.values()],
            },
        ),
    }


def _retried(rows: Sequence[Row]) -> dict[int, dict[str, int]]:
    """Entries by failed runs, and by outcome; those that never failed are left out."""
    found: dict[int, dict[str, int]] = {}
    for row in sorted(rows, key=lambda row: int(row["failed_runs"])):
        if row["failed_runs"] > 0:
            outcomes = found.setdefault(min(row["failed_runs"], _MOST_FAILED_RUNS), {})
            outcomes[row["outcome"]] = outcomes.get(row["outcome"], 0) + row["entries"]
    return found


def _summed(rows: Sequence[Row], key: Callable[[Row], str]) -> dict[str, int]:
    """The sums of `entries` by a key of the rows, in the order in which the keys come first."""
    found: dict[str, int] = {}
    for row in rows:
        found[key(row)] = found.get(key(row), 0) + row["entries"]
    return found


def _most_first(counts: Mapping[str, int]) -> list[str]:
    return sorted(counts, key=lambda name: -counts[name])


def _class(lower: float | None, upper: float | None) -> str:
    if lower is None:
        return f"less than {duration(upper)}"
    return (
        f"{duration(lower)} or more" if upper is None else f"{duration(lower)} to {duration(upper)}"
    )
