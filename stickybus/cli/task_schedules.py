"""Recurring schedules by hand: `recur`, `stop-recurring` and `recurring` of `stickybus tasks`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import msgspec
import typer

from queue_core.model.missed_policy import MissedPolicy
from stickybus.cli.exit_codes import BAD_DATA
from stickybus.cli.option_groups import grouped
from stickybus.cli.output import remark, say, write_json, write_table
from stickybus.cli.target import Json
from stickybus.cli.usage import UsageError
from stickybus.cli.work import Opening, Queue, opening, seconds, value_of

COLUMNS = {
    "queue": "QUEUE",
    "name": "SCHEDULE",
    "told": "RULE",
    "missed": "MISSED",
    "last_due": "LAST DUE (UTC)",
    "last_task_id": "LAST TASK",
    "next_due": "NEXT DUE (UTC)",
}

Name = Annotated[
    str, typer.Option(help="The schedule's name within its queue.", show_default=False)
]


@grouped(opened=opening)
def recur(
    *,
    queue: Queue,
    name: Name,
    value: Annotated[
        str, typer.Option("--value", "-v", help="The value of each task, in JSON.")
    ] = ("null"),
    cron: Annotated[
        str | None,
        typer.Option(help="Five fields, or a macro such as @daily.", show_default=False),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            help="Time between two dates, instead of --cron: 90s, 5m.", show_default=False
        ),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(help="Time zone of --cron. Default: UTC.", show_default=False),
    ] = None,
    missed: Annotated[
        MissedPolicy,
        typer.Option(case_sensitive=False, help="Rule for dates that passed while nobody claimed."),
    ] = MissedPolicy.FIRE_ONCE,
    as_json: Json = False,
    opened: Opening,
) -> None:
    """Insert a task into a queue again and again, once for each date.

    It replaces the schedule of this name. Claims of the queue insert the due tasks.

    Examples:
      stickybus tasks recur -q reports --name nightly --cron '0 3 * * *' --timezone Europe/Berlin

      stickybus tasks recur -q health --name ping --every 5m -v '{"host": "db1"}'
    """
    given = value_of(value)
    if (cron is None) == (every is None):
        raise UsageError("give either --cron or --every")
    interval = None if every is None else seconds(every)
    if interval is not None and timezone is not None:
        raise UsageError("--timezone is of --cron: an interval has none")
    with opened() as work:
        made = work.recur(
            queue,
            name,
            given,
            cron=cron,
            every=interval,
            timezone=timezone or "UTC",
            missed=missed,
        )
    if as_json:
        write_json(msgspec.to_builtins(made))
    else:
        told = f"{queue} gets a task by {name}, {made.told}, next at {made.next_due}"
        say(told)


@grouped(opened=opening)
def stop_recurring(*, queue: Queue, name: Name, as_json: Json = False, opened: Opening) -> None:
    """End a recurring schedule of a queue. Tasks that it has inserted stay.

    Exit code 1 if there is no such schedule.

    Examples:
      stickybus tasks stop-recurring -q reports --name nightly
    """
    with opened() as work:
        stopped = work.stop_recurring(queue, name)
    if as_json:
        write_json({"stopped": stopped})
    elif stopped:
        say(f"{name} of {queue} was stopped")
    else:
        remark(f"stickybus: the queue {queue} has no recurring schedule {name}")
    if not stopped:
        raise typer.Exit(BAD_DATA)


@grouped(opened=opening)
def recurring(*, as_json: Json = False, opened: Opening) -> None:
    """Show the recurring schedules of queues: their rules, and their last and next dates.

    Examples:
      stickybus tasks recurring
    """
    with opened() as work:
        found = work.recurring()
    if as_json:
        write_json(msgspec.to_builtins(found))
    else:
        rows = [asdict(one) | {"told": one.told} for one in found]
        write_table("Recurring schedules", COLUMNS, rows, empty="No queue has a schedule.")
