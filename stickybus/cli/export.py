"""`stickybus history export`: an archive as a Delta table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from history_pipeline.extras import check_arrow
from stickybus.cli.archive_options import ArchivedTable, Folder
from stickybus.cli.entry_options import DEFAULT_TABLE
from stickybus.cli.output import plural, say, write_json
from stickybus.cli.steps import steps
from stickybus.cli.target import Json, Url, url_of


def export(
    *,
    folder: Folder,
    to: Annotated[
        str, typer.Option("--to", help="Directory for Delta tables.", show_default=False)
    ],
    table: ArchivedTable = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Copy an archive to a Delta table, or bring the table up to date.

    DuckDB, Polars, Spark, Trino and others read it. Repeat it after each archive: only new files
    are copied, and those that were replaced leave the table. Needs the extra `delta`.

    With the URL of the database that was archived, the newest manifests are known to be there as
    well.

    Examples:
      stickybus history export --in /var/archive --to /var/lake

      stickybus history export --in s3://bucket/archive --to s3://bucket/lake --table orders
    """
    check_arrow("delta")
    from history_pipeline import export_delta

    with steps("reading manifests", quiet=as_json) as progress:
        done = export_delta(
            folder, to, table=table, database=url_of(url) if url else None, progress=progress
        )
    if as_json:
        write_json(asdict(done))
        return
    say(
        f"{plural(done.files, 'file')} with {plural(done.entries, 'row')} in {done.target}, "
        f"version {done.version}: {done.added} added, {done.removed} removed"
    )
