"""`stickybus tasks replay`: failed tasks, sent back to where they failed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from stickybus.cli.bulk import Yes
from stickybus.cli.exit_codes import INTERRUPTED
from stickybus.cli.option_groups import grouped
from stickybus.cli.output import plural, remark, say, write_json, write_table
from stickybus.cli.progress import bar, stoppable
from stickybus.cli.target import Json
from stickybus.cli.work import Opening, Queue, opening, row
from work_queue.replayed import Replayed

PREVIEW = {
    "id": "ID",
    "failed_in": "FAILED IN",
    "at": "SINCE (UTC)",
    "attempt": "ATTEMPT",
    "err": "ERROR",
}


@grouped(opened=opening)
def replay(
    *,
    queue: Queue,
    to: Annotated[
        str | None,
        typer.Option("--to", "-Q", help="Send all of them to this queue.", show_default=False),
    ] = None,
    failed_in: Annotated[
        str | None,
        typer.Option(help="Only those that failed in this queue.", show_default=False),
    ] = None,
    error_text: Annotated[
        str | None,
        typer.Option(help="Only those whose error has this text.", show_default=False),
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
    opened: Opening,
) -> None:
    """Send the failed tasks of an error queue back to where they failed, without attempts.

    It goes in batches. Ctrl-C ends it after one.

    Examples:
      stickybus tasks replay -q mail/err

      stickybus tasks replay -q mail/err --error-text timeout --yes
    """
    with (
        opened() as work,
        stoppable() as stop,
        bar("replayed so far", quiet=as_json or not yes) as progress,
    ):
        result = work.replay_failed(
            queue,
            to=to,
            failed_in=failed_in,
            error_text=error_text,
            dry_run=not yes,
            progress=progress,
            stop=stop,
        )
    if as_json:
        first = [task.id for task in result.first]
        write_json({"done": yes, **asdict(result), "first": first})
    elif yes:
        _tell(result)
    else:
        _preview(result)
    if result.stopped:
        remark("Stopped after a batch: run the command again to go on.")
        raise typer.Exit(INTERRUPTED)


def _tell(result: Replayed) -> None:
    line = f"{result.replayed:,} of {plural(result.matched, 'task')} replayed"
    if result.skipped:
        line += f"; {result.skipped:,} were held or changed by others meanwhile"
    say(line)


def _preview(result: Replayed) -> None:
    rows = [row(task) for task in result.first]
    title = f"{plural(result.matched, 'task')} would be replayed; the first:"
    write_table(title, PREVIEW, rows, empty="No failed task matches.")
    if rows:
        say("Nothing was changed: this was a dry run. To do it, add --yes")
