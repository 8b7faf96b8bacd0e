"""The page of the report on tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from history_pipeline.audits.task_figures import TASK_COUNTS, TASK_GROUPINGS, TaskAudit
from history_pipeline.period import compared
from history_pipeline.reports import plots
from history_pipeline.reports.template import NO_NAME, period_words, precision, rendered
from history_pipeline.reports.verdict import Standing, Verdict

_COLUMNS = [
    ("tasks", "tasks", "count"),
    ("claims", "claims", "count"),
    ("attempts", "failed attempts", "count"),
    ("with_error", "with an error", "count"),
    *((f"lifetime_{rank}", rank, "duration") for rank in ("p50", "p99")),
    ("lifetime_max", "longest", "duration"),
]
"""The columns of each table: their keys, their headings, and what they hold."""
_SHOWN_IDS = 12
"""Record ids that the verdict lists."""

Row = Mapping[str, Any]


def render_tasks(audit: TaskAudit) -> str:
    """The page as HTML. Every name in it is escaped; it loads nothing and runs nothing."""
    statistics = _by_grouping(audit.rows("statistics"))
    hours, errors = statistics["hour"], _errors(statistics["error"])
    judged, now = task_verdict(audit), audit.period.until or audit.made
    return rendered(
        "tasks.html.j2",
        title="Stickybus report on tasks",
        audit=audit,
        standing=judged.standing,
        headline=judged.headline,
        details=judged.details,
        period=period_words(audit.period, audit.made, hours, "tasks"),
        precision=precision(audit.percentile_error),
        total=statistics["total"][0] if statistics["total"] else None,
        statistics=statistics,
        comparison=_comparison(audit.rows("comparison")),
        days=[f"{compared(now)['yesterday'].since:%Y-%m-%d}"],
        columns=_COLUMNS,
        drawn={
            "throughput": plots.throughput(hours, {"tasks": "processed"}, ("task", "tasks")),
            "lifetimes": plots.latencies("lifetimes", statistics["queue"], "lifetime"),
            "errors": plots.bars("errors", [*errors], {"failed": [*errors.values()]}, legend=False),
        },
        step=plots.step_name(hours),
    )


def task_verdict(audit: TaskAudit) -> Verdict:
    """What was read, and whether history and archive agree."""
    details = [
        f"{count:,} {'task is' if count == 1 else 'tasks are'} in {where}."
        for count, where in ((audit.history, "the database"), (audit.archived, "the archive"))
        if count is not None
    ]
    if audit.differing:
        count = len(audit.differing)
        ids = ", ".join(map(str, audit.differing[:_SHOWN_IDS]))
        headline = (
            f"{count:,} {'task differs' if count == 1 else 'tasks differ'} between the database "
            "and the archive."
        )
        return Verdict(Standing.FAULTY, headline, (*details, f"Record ids: {ids}."))
    if not audit.history and not audit.archived:
        return Verdict(
            Standing.EMPTY, "No task of a queue that keeps history has ended.", (*details,)
        )
    # Ids are given when tasks end, and rows may be deleted by queue: a gap says nothing.
    proof = (
        "Whether tasks are missing, this report can't tell. Of an archive, stickybus history "
        "verify can."
    )
    total = sum(row["tasks"] for row in audit.rows("statistics") if row["grouping"] == "total")
    headline = f"{total:,} {'task has' if total == 1 else 'tasks have'} ended."
    return Verdict(Standing.UNKNOWN, headline, (*details, proof))


def _by_grouping(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The statistics by grouping; all but the hours by how many tasks there were, most first."""
    found: dict[str, list[Row]] = {grouping: [] for grouping in TASK_GROUPINGS}
    for row in rows:
        found[row["grouping"]].append(row)
    for grouping, members in found.items():
        if grouping != "hour":
            members.sort(key=lambda row: -row["tasks"])
    return found


def _errors(rows: Sequence[Row]) -> dict[str, int]:
    """Tasks by the type of their error, most first."""
    found: dict[str, int] = {}
    for row in rows:
        name = row["error_type"] or NO_NAME
        found[name] = found.get(name, 0) + row["tasks"]
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def _comparison(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Yesterday and the week before it, of all tasks first, then of each queue, most first."""
    nothing = dict.fromkeys(TASK_COUNTS, 0) | {"lifetime_p99": None}
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        of = {name: row[name] for name in ("grouping", "queue_name")}
        spans = found.setdefault(tuple(of.values()), {**of, "day": nothing, "week": nothing})
        spans["day" if row["span"] == "yesterday" else "week"] = row
    return sorted(
        found.values(),
        key=lambda pair: (
            pair["grouping"] != "total",
            -pair["day"]["tasks"],
            -pair["week"]["tasks"],
        ),
    )
