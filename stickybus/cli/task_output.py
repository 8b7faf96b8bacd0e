"""Tasks as commands read and show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from stickybus.cli.exit_codes import BAD_DATA
from stickybus.cli.output import plural, remark, write_json, write_table
from stickybus.cli.work import facts, row
from work_queue.finished_task import FinishedTask
from work_queue.task import Task
from work_queue.values import UNREAD

if TYPE_CHECKING:
    from work_queue.work_queue import WorkQueue

COLUMNS = {
    "id": "ID",
    "version": "VERSION",
    "queue": "QUEUE",
    "at": "AT (UTC)",
    "claimant": "CLAIMANT",
    "claims": "CLAIMS",
    "attempt": "ATTEMPT",
    "err": "ERROR",
    "value": "VALUE",
}

Id = Annotated[str, typer.Option("--task", "-t", help="The task's id.", show_default=False)]
HiddenValues = Annotated[
    bool, typer.Option("--omit-values", "-V", help="Show the tasks without their values.")
]


def read(work: WorkQueue, task_id: str, queue: str = "") -> Task:
    """The task of an id, in a queue if one is given. Ends the command if there is none."""
    found = work.tasks(queue or None, ids=[task_id])
    if not found:
        refuse(f"there is no task {task_id}" + (f" in {queue}" if queue else ""))
    return found[0]


def write_list(
    title: str,
    columns: Mapping[str, str],
    found: Sequence[Task | FinishedTask],
    *,
    omit_values: bool,
    as_json: bool,
    empty: str,
) -> None:
    """Show tasks that were read, with or without their values."""
    if as_json:
        write_json([facts(one) for one in found])
        return
    shown = {key: head for key, head in columns.items() if key != "value" or not omit_values}
    write_table(title, shown, [row(one) for one in found], empty=empty)


def write(done: str, tasks: Sequence[Task], *, omit_values: bool, as_json: bool) -> None:
    """Show tasks to which something was done, with or without their values."""
    if omit_values:
        tasks = [replace(one, value=UNREAD) for one in tasks]
    write_list(
        f"{plural(len(tasks), 'task')} {done}",
        COLUMNS,
        tasks,
        omit_values=omit_values,
        as_json=as_json,
        empty=f"No task was {done}.",
    )


def refuse(why: str) -> NoReturn:
    """End the command, which has found nothing to do."""
    remark(f"stickybus: {why}")
    raise typer.Exit(BAD_DATA)
