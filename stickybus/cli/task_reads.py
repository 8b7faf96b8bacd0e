"""Reads of tasks by hand: `ts`, `stats` and `time` of `stickybus tasks`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from stickybus.cli.option_groups import grouped
from stickybus.cli.output import write_json, write_table
from stickybus.cli.target import Json
from stickybus.cli.task_output import COLUMNS, write_list
from stickybus.cli.work import (
    AnyJson,
    Ids,
    Limit,
    OfQueue,
    Opening,
    Prefixes,
    WithoutValues,
    opening,
)

STATS = {
    "queue": "QUEUE",
    "tasks": "SIZE",
    "future": "FUTURE",
    "available": "AVAILABLE",
    "claimed": "CLAIMED",
    "max_claims": "MAX CLAIMS",
}


Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", "-q", help="This queue; may be repeated.", show_default=False),
]


@grouped(opened=opening)
def ts(
    *,
    queue: OfQueue = None,
    task: Ids = None,
    limit: Limit = 100,
    omit_values: WithoutValues = False,
    as_json: Json = False,
    opened: Opening,
) -> None:
    """List tasks of a queue, or by their ids.

    Examples:
      stickybus tasks ts -q mail

      stickybus tasks ts -q mail --limit 0 --omit-values --json
    """
    with opened() as work:
        found = work.tasks(queue, ids=task, limit=limit, with_values=not omit_values)
    write_list("Tasks", COLUMNS, found, omit_values=omit_values, as_json=as_json, empty="No task.")


@grouped(opened=opening)
def stats(
    *,
    prefix: Prefixes = None,
    queue: Queues = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", help="At most this number of queues; 0: all.")
    ] = 0,
    as_json: AnyJson = False,
    opened: Opening,
) -> None:
    """Count the tasks of queues: those that can be claimed, are claimed, or are still to come.

    Examples:
      stickybus tasks stats

      stickybus tasks stats -p mail/ --json
    """
    with opened() as work:
        found = [
            asdict(one)
            for one in work.queue_stats(*queue or (), prefixes=prefix or (), limit=limit)
        ]
    if as_json:
        write_json(found)
    else:
        write_table("Queues", STATS, found, empty="No queue has tasks.")


@grouped(opened=opening)
def time(
    *,
    milliseconds: Annotated[
        bool, typer.Option("--milliseconds", "-m", help="As milliseconds since 1970.")
    ] = False,
    local: Annotated[
        bool, typer.Option("--local", "-l", help="In the time zone of this machine.")
    ] = False,
    as_json: Json = False,
    opened: Opening,
) -> None:
    """Show the clock that decides about arrivals and leases.

    Examples:
      stickybus tasks time --local
    """
    with opened() as work:
        now = work.time()
    shown: int | str = (now.astimezone() if local else now).isoformat()
    if milliseconds:
        shown = int(now.timestamp() * 1000)
    if as_json:
        write_json({"time": shown})
    else:
        typer.echo(shown)
