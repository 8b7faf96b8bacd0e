"""`stickybus history archive`, `compact` and `expire`: history as files."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.filesize import decimal

from history_pipeline import Scale
from history_pipeline.rows.parts import Part
from stickybus.cli.archive_options import (
    ArchivedTable,
    FileBytes,
    Folder,
    IdsPerPartition,
    MaxPartitions,
    RunRows,
)
from stickybus.cli.entry_options import DEFAULT_TABLE
from stickybus.cli.moments import moment
from stickybus.cli.output import plural, say, write_json
from stickybus.cli.steps import steps
from stickybus.cli.target import Json, Url, connected, opened, url_of


def check_history(url: str | None, table: str) -> None:
    """Tell of a mistyped file or table before Spark starts."""
    from history_pipeline.rows.kind import ENTRIES, kind_of

    with opened(url, table) if kind_of(table) is ENTRIES else connected(url):
        pass


def archive(
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to", help="Directory: a path, or a URL that Spark can write to.", show_default=False
        ),
    ],
    before: Annotated[
        str | None,
        typer.Option(
            help=(
                "Only rows that finished before: an age (2h, 30d), or ISO 8601. Default: a minute "
                "ago."
            ),
            show_default=False,
        ),
    ] = None,
    without: Annotated[
        list[Part] | None,
        typer.Option(
            help=(
                "Part of rows to leave out, which is lost then: payload, errors. May be repeated."
            ),
            show_default=False,
        ),
    ] = None,
    run_rows: RunRows = Scale.run_rows,
    ids_per_partition: IdsPerPartition = Scale.ids_per_partition,
    max_partitions: MaxPartitions = Scale.max_partitions,
    file_bytes: FileBytes = Scale.file_bytes,
    table: ArchivedTable = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Move history of a table to Parquet files, while its queues run: of entries, or of tasks.

    Rows are copied, read back, and only then deleted.

    Killed at any point, start it again: it finishes the work it had begun. Needs Java and the extra
    `spark`.

    Examples:
      stickybus history archive --to /var/archive --before 30d

      stickybus history archive --to s3a://bucket/archive --table notifications --before 90d --json

      stickybus history archive --to /var/archive --before 30d --without payload --without errors

      stickybus history archive --to /var/archive --before 30d --table work_task_history
    """
    until = None if before is None else moment(before, now=datetime.now(UTC))
    scale = Scale(run_rows, ids_per_partition, max_partitions, file_bytes)
    check_history(url, table)
    with steps(quiet=as_json) as told:
        from history_pipeline.job_session import job_session

        with job_session("stickybus archive") as spark:
            from history_pipeline import archive_history

            done = archive_history(
                spark,
                url_of(url),
                to,
                table=table,
                before=until,
                without=without or (),
                scale=scale,
                progress=told,
            )
    if as_json:
        write_json(asdict(done))
        return
    if done.finished:
        say(f"{plural(done.finished, 'row')} deleted that an earlier run had archived")
    files = f"{plural(done.files, 'file')} ({decimal(done.size_bytes)})"
    from history_pipeline.rows.kind import kind_of

    history = kind_of(table).history(table).name
    say(
        f"{plural(done.entries, 'row')} moved from {history} to {files} in {done.target}"
        if done.entries
        else f"nothing to archive: no row of {history} ended before {done.before.isoformat()}"
        + ("" if until else ". Rows of the last minute are left for a later run")
    )


def compact(
    *,
    folder: Folder,
    file_bytes: FileBytes = Scale.file_bytes,
    table: ArchivedTable = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Make few files of the many of a day in an archive; archives and readers may go on meanwhile.

    The old files are removed by the next archive, compaction or expiry that comes a day later or
    more. The database that was archived holds the log of the archive.

    Example:
      stickybus history compact --in /var/archive --url postgresql://user@host/name
    """
    check_history(url, table)
    with steps(quiet=as_json) as told:
        from history_pipeline.job_session import job_session

        with job_session("stickybus compact") as spark:
            from history_pipeline import compact_archive

            done = compact_archive(
                spark,
                folder,
                database=url_of(url),
                table=table,
                scale=Scale(file_bytes=file_bytes),
                progress=told,
            )
    if as_json:
        write_json(asdict(done))
    elif done.run is None:
        say(f"nothing to do: {done.target} has no more files than it needs")
    else:
        say(
            f"{plural(done.files_before, 'file')} of {plural(done.days, 'day')} are "
            f"{done.files_after} now, with {plural(done.entries, 'row')}"
        )


def expire(
    *,
    folder: Folder,
    before: Annotated[
        str,
        typer.Option(
            help="Only days that were over before: an age (90d, 2y), or ISO 8601.",
            show_default=False,
        ),
    ],
    table: ArchivedTable = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Remove the oldest days of an archive; archives and readers may go on meanwhile.

    No reader sees these days any more. Their files are removed by the next archive, compaction or
    expiry that comes a day later or more.

    Examples:
      stickybus history expire --in /var/archive --before 2y --url postgresql://user@host/name

      stickybus history expire --in /var/archive --before 2026-01-01T00:00:00Z --json
    """
    until = moment(before, now=datetime.now(UTC))
    check_history(url, table)
    with steps(quiet=as_json):
        from history_pipeline.job_session import job_session

        with job_session("stickybus expire") as spark:
            from history_pipeline import expire_archive

            done = expire_archive(spark, folder, database=url_of(url), before=until, table=table)
    if as_json:
        write_json(asdict(done))
        return
    gone = (
        f"{plural(done.entries, 'row')} of {plural(done.days, 'day')} ({done.first_day} to "
        f"{done.last_day})"
    )
    say(
        f"{gone} are gone, with {plural(done.files, 'file')} ({decimal(done.size_bytes)})"
        if done.run
        else (f"nothing to do: no day of {done.target} was over before {done.before.isoformat()}")
    )
