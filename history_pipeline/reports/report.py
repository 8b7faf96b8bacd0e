"""The report on a history: a page, and the same figures as JSON and Parquet."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import pyarrow.parquet as pq

from history_pipeline.audits.figures import Audit
from history_pipeline.audits.task_figures import TaskAudit
from history_pipeline.reports.page import render
from history_pipeline.reports.task_page import render_tasks, task_verdict
from history_pipeline.reports.verdict import Verdict, verdict
from queue_core.runtime.arguments import not_allowed, of_kind


def as_json(audit: Audit | TaskAudit) -> dict[str, Any]:
    """Return all figures. Dates are ISO 8601 in UTC; a figure that is unknown is None."""
    found = judged(audit)
    faults: dict[str, Any] = (
        {"faults_found": dict(audit.faults)}
        if isinstance(audit, Audit)
        else {name: getattr(audit, name) for name in ("history", "archived", "differing")}
    )
    return {
        "made": _date(audit.made),
        "database": audit.database,
        "database_name": audit.database_name,
        "archive": audit.archive,
        "since": _plain(audit.period.since),
        "until": _plain(audit.period.until),
        "percentile_error": audit.percentile_error,
        "standing": found.standing.value,
        "headline": found.headline,
        "details": list(found.details),
        **faults,
        **{
            name: [{key: _plain(value) for key, value in row.items()} for row in audit.rows(name)]
            for name in audit.tables
        },
    }


def judged(audit: Audit | TaskAudit) -> Verdict:
    """The verdict on an audit."""
    return verdict(audit) if isinstance(audit, Audit) else task_verdict(audit)


def write_figures(audit: Audit | TaskAudit, folder: Path) -> list[Path]:
    """Write `figures.json` and a Parquet file for each table of figures into a folder.

    Each file is replaced at once or not at all.

    Args:
        audit: The figures, as `audit`, `rolled_audit` or `rolled_task_audit` returns them.
        folder: The folder. It is made if it is not there.

    Returns:
        The paths of the files.

    Raises:
        ConfigurationError: An argument is not allowed.
        OSError: The folder can't be written.
    """
    _check(audit, folder, key="folder")
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


def write_page(audit: Audit | TaskAudit, path: Path) -> None:
    """Write the report as a page of HTML. A former one is replaced at once or not at all.

    Args:
        audit: The figures, as `audit`, `rolled_audit` or `rolled_task_audit` returns them.
        path: The file.

    Raises:
        ConfigurationError: An argument is not allowed.
        OSError: The file can't be written.
    """
    _check(audit, path, key="path")
    page = render(audit) if isinstance(audit, Audit) else render_tasks(audit)
    _replace(path, lambda temporary: temporary.write_text(page, encoding="utf-8"))


def _check(audit: Audit | TaskAudit, path: Path, *, key: str) -> None:
    """Raises ConfigurationError for other figures, and for what no file system has as a path."""
    of_kind(audit, Audit, TaskAudit, key="audit")
    of_kind(path, Path, key=key)
    try:
        possible = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        raise not_allowed(key, path, "a path that the file system can have")


def _replace(path: Path, write: Callable[[Path], object]) -> Path:
    temporary = path.with_name(f".{path.name}.{token_hex(4)}")
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _date(date: datetime) -> str:
    return date.astimezone(UTC).isoformat()


def _plain(value: Any) -> Any:
    return _date(value) if isinstance(value, datetime) else value
