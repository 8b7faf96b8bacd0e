"""`stickybus report`: the work of a period, as a page for people and as figures for programs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from stickybus.cli.exit_codes import BAD_DATA
from stickybus.cli.moments import moment
from stickybus.cli.output import say, write_json
from stickybus.cli.steps import steps
from stickybus.cli.target import Json, Url, inspected, url_of
from stickybus.cli.usage import UsageError

if TYPE_CHECKING:
    from sqlalchemy import URL

    from history_pipeline import Audit, Period, TaskAudit
    from history_pipeline.progress import Progress


class _Read(TypedDict):
    """The history that is read, as the library takes it."""

    url: URL | None
    archive: str | None
    period: Period
    progress: Progress


def report(
    *,
    to: Annotated[
        Path | None, typer.Option("--to", help="Write the page here.", show_default=False)
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            help="Directory for the figures as figures.json and Parquet files; made if missing.",
            show_default=False,
        ),
    ] = None,
    from_archive: Annotated[
        str | None,
        typer.Option(
            "--from-archive",
            help="Directory of an archive: read with the database, or alone without a URL.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Count only rows that ended since: an age (7d), or ISO 8601.", show_default=False
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="Count only rows that ended before, likewise.", show_default=False),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Exact percentiles, of all rows: by Spark, which needs Java."),
    ] = False,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            help=(
                "Only this main table; may be repeated. Default: all. `work_task_history`, alone: "
                "finished tasks."
            ),
            show_default=False,
        ),
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Report on history: is everything complete, what failed, how long it took. Reads no payloads.

    Exit code 1 if an entry is lost or ended twice. Needs the extra `report`. Finished tasks of work
    queues have a report of their own.

    Examples:
      stickybus report --to report.html --since 7d

      stickybus report --to report.html --figures figures --from-archive /var/archive

      stickybus report --from-archive /var/archive --url '' --json

      stickybus report --table work_task_history --to tasks.html
    """
    now = datetime.now(UTC)
    begin, end = (None if text is None else moment(text, now=now) for text in (since, until))
    if begin is not None and end is not None and begin >= end:
        raise UsageError(f"--until {until} is not after --since {since}")
    _check_places(to, figures, as_json=as_json)
    tasks = _on_tasks(table, exact=exact)
    _check_source(from_archive, () if tasks else table or (), url)
    from history_pipeline.extras import check_arrow

    check_arrow("report")
    from history_pipeline import Period

    period = Period(begin, end)
    database = url_of(url) if url else None
    with steps("starting Spark" if exact else "reading", quiet=as_json) as told:
        read: _Read = {
            "url": database,
            "archive": from_archive,
            "period": period,
            "progress": told,
        }
        found = _audited(read, table, tasks=tasks, exact=exact)
    from history_pipeline import write_figures, write_page
    from history_pipeline.reports.report import as_json as document
    from history_pipeline.reports.report import judged
    from history_pipeline.reports.verdict import Standing

    if to is not None:
        write_page(found, to)
    if figures is not None:
        write_figures(found, figures)
    verdict = judged(found)
    if as_json:
        write_json(document(found))
    else:
        for line in (verdict.headline, *verdict.details):
            say(line)
        for written in filter(None, (to, figures)):
            say(f"written: {written}")
    if verdict.standing is Standing.FAULTY:
        raise typer.Exit(BAD_DATA)


def _audited(
    read: _Read, tables: Sequence[str] | None, *, tasks: bool, exact: bool
) -> Audit | TaskAudit:
    """The audit of tasks, or of entries, `exact` or not."""
    if tasks:
        from history_pipeline import rolled_task_audit

        return rolled_task_audit(**read)
    if exact:
        from history_pipeline.job_session import job_session

        with job_session("stickybus report") as spark:
            from history_pipeline import audit

            return audit(spark, **read, tables=tables)
    from history_pipeline import rolled_audit

    return rolled_audit(**read, tables=tables)


def _check_places(to: Path | None, figures: Path | None, *, as_json: bool) -> None:
    """Tell of a folder that can't be written before anything is read."""
    if to is None and figures is None and not as_json:
        raise UsageError("nowhere to write: give --to FILE, --figures DIR or --json")
    if to is not None and (to.is_dir() or not to.parent.is_dir()):
        raise UsageError(
            f"--to {to}: "
            f"{'it is a directory' if to.is_dir() else f'there is no directory {to.parent}'}"
        )
    if figures is not None and figures.exists() and not figures.is_dir():
        raise UsageError(f"--figures {figures}: it is no directory")


def _on_tasks(tables: Sequence[str] | None, *, exact: bool) -> bool:
    """Whether the report is on tasks."""
    from history_pipeline.rows.kind import TASKS, kind_of

    on_tasks = [table for table in tables or () if kind_of(table) is TASKS]
    if not on_tasks:
        return False
    if len(on_tasks) != len(tables or ()):
        raise UsageError(
            f"--table {on_tasks[0]}: it holds tasks, and tasks have a page of their own. Ask for "
            "each page."
        )
    if exact:
        raise UsageError(
            f"--exact: only entries have exact percentiles, and {on_tasks[0]} holds tasks"
        )
    return True


def _check_source(from_archive: str | None, tables: Sequence[str], url: str | None) -> None:
    """Tell of an archive that can't be read before anything is."""
    if not url and from_archive is not None:
        return
    with inspected(url) as inspector:
        inspector.check_table()
        for table in tables if from_archive is None else ():
            inspector.check_table(table)
