"""The report: one page that needs nothing else, and the same figures as JSON and Parquet."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import pyarrow.parquet as pq
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from history_pipeline import plots
from history_pipeline.audit import Audit
from history_pipeline.verdict import SENTENCES, verdict
from history_pipeline.wording import duration, percentage

SHOWN = 30
"""Rows of a table of the page; the JSON has all."""
NO_NAME = "(none)"
_MOST_FAILED_RUNS = 6
"""From this number on, failed runs share one bar."""

Row = Mapping[str, Any]


def as_json(audit: Audit) -> dict[str, Any]:
    """Return all figures. Dates are ISO 8601 in UTC; a figure that is unknown is None."""
    found = verdict(audit)
    return {
        "made": _date(audit.made),
        "database": audit.database,
        "database_name": audit.database_name,
        "archive": audit.archive,
        "standing": found.standing.value,
        "headline": found.headline,
        "details": list(found.details),
        "faults_found": dict(audit.faults),
        **{
            name: [{key: _plain(value) for key, value in row.items()} for row in audit.rows(name)]
            for name in audit.tables
        },
    }


def write_figures(audit: Audit, folder: Path) -> list[Path]:
    """Write `figures.json` and a Parquet file for each table of figures into a folder.

    Returns their paths.

    The folder is made if it is not there; each file is replaced at once or not at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(as_json(audit), indent=2, ensure_ascii=False, allow_nan=False)
    written = [
        _replace(
            folder / "figures.json", lambda path: path.write_text(f"{text}\n", encoding="utf-8")
        )
    ]
    for name, table in audit.tables.items():
        write = partial(pq.write_table, table, compression="zstd")
        written.append(_replace(folder / f"{name}.parquet", write))
    return written


def write_page(audit: Audit, path: Path) -> None:
    """Write the page; a former one is replaced at once or not at all."""
    page = render(audit)
    _replace(path, lambda temporary: temporary.write_text(page, encoding="utf-8"))


def render(audit: Audit) -> str:
    """The page as HTML. Every name in it is escaped; it loads nothing and runs nothing."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "fault": lambda fault: SENTENCES[fault][0],
        "duration": duration,
        "count": _count,
        "moment": _moment,
    }
    statistics = _by_grouping(audit.rows("statistics"))
    total = statistics["total"][0] if statistics["total"] else None
    return environment.get_template("report.html.j2").render(
        audit=audit,
        verdict=verdict(audit),
        total=total,
        statistics=statistics,
        rows=audit.rows,
        plots={
            name: None if svg is None else Markup(svg)  # noqa: S704 -- matplotlib's, which escapes
            for name, svg in _plots(audit, statistics).items()
        },
        step=plots.step_name(statistics["hour"]),
        percentage=percentage,
        shown=SHOWN,
        no_name=NO_NAME,
        several=len(audit.audited) > 1,
    )


def _by_grouping(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The statistics by grouping; all but the hours by how many entries there were, most first."""
    found: dict[str, list[Row]] = {
        name: [] for name in ("total", "queue", "event_type", "node", "hour")
    }
    for row in rows:
        found[row["grouping"]].append(row)
    for grouping, members in found.items():
        if grouping != "hour":
            members.sort(key=_entries, reverse=True)
    return found


def _entries(row: Row) -> int:
    return sum(row[outcome] for outcome in plots.OUTCOMES)


def _plots(audit: Audit, statistics: Mapping[str, Sequence[Row]]) -> dict[str, str | None]:
    queues = statistics["queue"]
    starts = [
        (
            row["queue_name"] if measure == "start_latency" else f"{row['queue_name']} (late)",
            row,
            measure,
        )
        for row in queues
        for measure in ("start_latency", "lateness")
        if row[f"{measure}_count"]
    ]
    handlers = [(row["queue_name"], row, "handler") for row in queues if row["handler_count"]]
    failures = audit.rows("failures")
    types = _summed(failures, lambda row: row["class_name"])
    errors = _summed(failures, lambda row: row["error_type"] or NO_NAME)
    classes = sorted(audit.rows("lateness"), key=lambda row: row["from_seconds"] or 0.0)
    late = _summed(classes, lambda row: _class(row["from_seconds"], row["to_seconds"]))
    retried = _retried(audit.rows("retries"))
    return {
        "throughput": plots.throughput(statistics["hour"]),
        "starts": plots.latencies(starts),
        "handlers": plots.latencies(handlers),
        "failures": plots.bars(
            _most_first(types), {"failed": sorted(types.values(), reverse=True)}, legend=False
        ),
        "errors": plots.bars(
            _most_first(errors), {"failed": sorted(errors.values(), reverse=True)}, legend=False
        ),
        "lateness": plots.bars([*late], {"p90": [*late.values()]}, legend=False),
        "retries": plots.bars(
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


def _replace(path: Path, write: Callable[[Path], object]) -> Path:
    temporary = path.with_name(f".{path.name}.{token_hex(4)}")
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _moment(date: datetime) -> str:
    return date.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _date(date: datetime) -> str:
    return date.astimezone(UTC).isoformat()


def _plain(value: Any) -> Any:
    return _date(value) if isinstance(value, datetime) else value
