"""The history of tasks by hand: `keep-history`, `histories`, `finished` and `truncate-history`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from history_pipeline.rows.parts import Part
from stickybus.cli.archive_options import SearchedArchive
from stickybus.cli.moments import moment
from stickybus.cli.option_groups import grouped
from stickybus.cli.output import plural, say, write_json, write_table
from stickybus.cli.progress import bar
from stickybus.cli.target import Json
from stickybus.cli.task_output import write_list
from stickybus.cli.work import (
    Ids,
    Limit,
    OfQueue,
    Opening,
    Queue,
    WithoutValues,
    opening,
)

if TYPE_CHECKING:
    from work_queue.finished_task import FinishedTask

COLUMNS = {
    "id": "ID",
    "version": "VERSION",
    "queue": "QUEUE",
    "finished": "FINISHED (UTC)",
    "finished_by": "BY",
    "claims": "CLAIMS",
    "attempt": "ATTEMPT",
    "err": "ERROR",
    "value": "VALUE",
}
Before = Annotated[
    str | None,
    typer.Option(
        help="Only tasks that ended before: an age (2h, 30d), or ISO 8601.", show_default=False
    ),
]


@grouped(opened=opening)
def keep_history(
    *,
    queue: Queue,
    off: Annotated[
        bool, typer.Option("--off", help="Keep none from now on. Kept history stays.")
    ] = False,
    as_json: Json = False,
    opened: Opening,
) -> None:
    """Keep the tasks of a queue in history when they are deleted, from now on.

    Examples:
      stickybus tasks keep-history -q mail

      stickybus tasks keep-history -q mail --off
    """
    with opened() as work:
        work.keep_history(queue, keep=not off)
    if as_json:
        write_json({"queue": queue, "keeps": not off})
    else:
        kept = "no history any more" if off else "history from now on"
        say(f"{queue} keeps {kept}")


@grouped(opened=opening)
def histories(*, as_json: Json = False, opened: Opening) -> None:
    """List the queues that keep history, or kept it once.

    Examples:
      stickybus tasks histories
    """
    with opened() as work:
        rows = [{"queue": queue, "since": since} for queue, since in work.histories().items()]
    if as_json:
        write_json(rows)
    else:
        columns = {"queue": "QUEUE", "since": "KEEPS HISTORY SINCE (UTC)"}
        write_table("Histories", columns, rows, empty="No queue keeps history.")


@grouped(opened=opening)
def finished(
    *,
    queue: OfQueue = None,
    task: Ids = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only tasks that ended since: an age (2h, 30d), or ISO 8601.", show_default=False
        ),
    ] = None,
    before: Before = None,
    archive: SearchedArchive = None,
    limit: Limit = 100,
    omit_values: WithoutValues = False,
    as_json: Json = False,
    opened: Opening,
) -> None:
    """List tasks that were deleted while their queue kept history, the last one first.

    An archive is searched without database and Spark. That needs the extra `archive`. Values that
    were not archived are left out.

    Examples:
      stickybus tasks finished -q mail

      stickybus tasks finished -q mail --archive /var/archive --since 90d

      stickybus tasks finished -q mail --since 2h --limit 0 --omit-values --json
    """
    if archive is None:
        with opened() as work:
            chosen = _chosen(task, since, before, omit_values=omit_values, now=work.time())
            found = work.finished_tasks(queue, **chosen, limit=limit)
    else:
        chosen = _chosen(task, since, before, omit_values=omit_values, now=datetime.now(UTC))
        found = _archived(archive, queue, chosen, limit)
    write_list(
        "Finished",
        COLUMNS,
        found,
        omit_values=omit_values,
        as_json=as_json,
        empty="No task of history.",
    )


class _Chosen(TypedDict):
    ids: list[str] | None
    since: datetime | None
    before: datetime | None
    with_values: bool


def _chosen(
    ids: list[str] | None,
    since: str | None,
    before: str | None,
    *,
    omit_values: bool,
    now: datetime,
) -> _Chosen:
    return {
        "ids": ids,
        "since": None if since is None else moment(since, now=now),
        "before": None if before is None else moment(before, now=now),
        "with_values": not omit_values,
    }


def _archived(archive: str, queue: str | None, chosen: _Chosen, limit: int) -> list[FinishedTask]:
    from history_pipeline.extras import check_arrow

    check_arrow()
    from history_pipeline import find_archived_tasks
    from work_queue.storage.rows import finished_of

    found = find_archived_tasks(archive, queue, **chosen, limit=limit or None)
    return [
        finished_of(one, has_value=chosen["with_values"] and Part.PAYLOAD not in one.not_archived)
        for one in found
    ]


@grouped(opened=opening)
def truncate_history(
    *,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue", "-q", help="This queue; may be repeated. Default: all.", show_default=False
        ),
    ] = None,
    before: Before = None,
    as_json: Json = False,
    opened: Opening,
) -> None:
    """Delete tasks from history, in batches, while everything runs.

    Examples:
      stickybus tasks truncate-history --before 30d

      stickybus tasks truncate-history -q mail
    """
    with opened() as work, bar("removed so far", quiet=as_json) as progress:
        until = None if before is None else moment(before, now=work.time())
        removed = work.truncate_history(
            *queue or (), before=until, progress=lambda done: progress(done, done)
        )
    if as_json:
        write_json({"removed": removed})
    else:
        say(f"{plural(removed, 'task')} removed from history")
