"""`stickybus history verify`: an archive beside its manifests."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from history_pipeline.extras import check_arrow
from stickybus.cli.archive_options import ArchivedTable, Folder
from stickybus.cli.entry_options import DEFAULT_TABLE
from stickybus.cli.exit_codes import BAD_DATA
from stickybus.cli.output import plural, remark, say, write_json
from stickybus.cli.steps import steps
from stickybus.cli.target import Json, Url, url_of

if TYPE_CHECKING:
    from sqlalchemy import URL

    from history_pipeline import Verified


def verify(
    *,
    folder: Folder,
    content: Annotated[
        bool,
        typer.Option("--content", help="Read every row, too. Needs Java and the extra `spark`."),
    ] = False,
    sums: Annotated[
        bool,
        typer.Option("--sums", help="Only write the SHA-256 of all files, for `sha256sum -c`."),
    ] = False,
    table: ArchivedTable = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Compare every file of an archive with the size and SHA-256 in its manifest.

    Exit code 1 if one is missing or differs. Needs the extra `archive`.

    With the URL of the database that was archived, the newest manifests are known to be there as
    well.

    Examples:
      stickybus history verify --in /var/archive --url postgresql://user@host/name

      stickybus history verify --in /var/archive --content

      stickybus history verify --in /var/archive --sums > archive.sha256
    """
    check_arrow()
    from history_pipeline import checksums, verify_archive

    if sums:
        for path, sha256 in checksums(folder, table=table).items():
            typer.echo(f"{sha256}  {path}")
        return
    database = url_of(url) if url else None
    done = (
        _verified_by_content(folder, table, database, quiet=as_json)
        if content
        else verify_archive(folder, table=table, database=database)
    )
    if as_json:
        write_json(asdict(done))
    else:
        for path in done.damaged:
            remark(f"damaged or missing: {done.target}/{path}")
        for path in done.lost:
            remark(
                f"missing: {done.target}/{path}. The next archive or compaction writes it anew "
                "from the database"
            )
        say(
            f"{plural(done.files, 'file')} with {plural(done.entries, 'row')} in {done.target}: "
            f"{_verdict(done)}"
        )
    if done.damaged or done.lost:
        raise typer.Exit(BAD_DATA)


def _verified_by_content(folder: str, table: str, database: URL | None, *, quiet: bool) -> Verified:
    with steps(quiet=quiet):
        from history_pipeline.job_session import job_session

        with job_session("stickybus verify") as spark:
            from history_pipeline import verify_content

            return verify_content(spark, folder, table=table, database=database)


def _verdict(done: Verified) -> str:
    if done.damaged:
        return f"{len(done.damaged)} not sound"
    if done.lost:
        return f"sound, but {plural(len(done.lost), 'manifest')} missing"
    if done.without_sha256:
        return (
            f"all as their manifests say; {plural(done.without_sha256, 'file')} of an old format: "
            "compared by size alone. To read these: --content"
        )
    return "all as their manifests say"
