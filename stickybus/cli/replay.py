"""`stickybus history replay`: archived entries are posted again."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from stickybus.cli.entry_options import DEFAULT_TABLE
from stickybus.cli.moments import moment
from stickybus.cli.output import plural, say, write_json, write_table
from stickybus.cli.steps import steps
from stickybus.cli.target import Json, TableName, Url, opened, url_of

GROUPS = {
    "queue_name": "QUEUE",
    "class_name": "EVENT",
    "entries": "TO POST",
    "replayed": "POSTED BEFORE",
}
FIRST = {
    "record_id": "ID",
    "queue_name": "QUEUE",
    "class_name": "EVENT",
    "processing_state": "STATE",
    "finished_date": "FINISHED (UTC)",
    "search_key1": "KEY1",
    "search_key2": "KEY2",
}


def replay(
    *,
    folder: Annotated[
        str, typer.Option("--from", help="Directory of the archive.", show_default=False)
    ],
    where: Annotated[
        str,
        typer.Option(
            "--where",
            help="Condition on the columns of history, in Spark's SQL.",
            show_default=False,
        ),
    ],
    since: Annotated[
        str | None,
        typer.Option(
            help="Only entries that ended since: an age (7d), or ISO 8601. Days before are not "
            "read.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="Only entries that ended before, likewise.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Post them; else only show them.")] = False,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Post archived entries again, each once however often this runs.

    Without --yes it only shows the entries that it would post.

    Each becomes a new entry, due now, for any node, that names the old one in `replay_of`. Payloads
    are never shown. Needs Java and the extra `spark`.

    Examples:
      stickybus history replay --from /var/archive --where "processing_state = 'FAILED'" --since 7d

      stickybus history replay --from /var/archive --where "record_id IN (4711, 4712)" --yes
    """
    from history_pipeline.rows.kind import check_entries

    check_entries(table, "a replay")
    now = datetime.now(UTC)
    begin, end = (None if text is None else moment(text, now=now) for text in (since, until))
    with opened(url, table) as engine, steps(quiet=as_json) as told:
        from history_pipeline.job_session import job_session

        with job_session("stickybus replay") as spark:
            from history_pipeline import replay_archive

            done = replay_archive(
                spark,
                url_of(url),
                folder,
                where=where,
                since=begin,
                until=end,
                table=table,
                post=yes,
                progress=told,
            )
        if done.posted:
            engine.lifecycle.hints.tell()
    if as_json:
        write_json({**asdict(done), "entries": done.entries, "replayed": done.replayed})
        return
    write_table(
        f"Archived entries of {table} that match",
        GROUPS,
        [asdict(group) for group in done.groups],
        empty="No archived entry matches.",
    )
    if done.without_payload:
        say(
            f"{plural(done.without_payload, 'entry')} more can't be posted: payloads that were not "
            "archived, or erased"
        )
    if yes:
        say(f"{plural(done.posted, 'entry')} posted")
    elif done.entries:
        write_table("The first of them", FIRST, done.first, empty="")
        say("Nothing was posted: this was a dry run. To post them, add --yes")
