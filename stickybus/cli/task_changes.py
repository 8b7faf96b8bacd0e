"""Changes of tasks by hand: `ins`, `mod` and `rm` of `stickybus tasks`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from queue_core.errors import StickybusError
from stickybus.cli.exit_codes import BAD_DATA
from stickybus.cli.option_groups import grouped
from stickybus.cli.output import remark
from stickybus.cli.target import Json
from stickybus.cli.task_output import HiddenValues, Id, read, write
from stickybus.cli.work import Force, Opening, Queue, opening, seconds, value_of
from work_queue.faults import DependencyError
from work_queue.modification import Delete, Insert
from work_queue.task import Task

if TYPE_CHECKING:
    from work_queue.work_queue import WorkQueue

RETRY_SECONDS = 3.0
"""The pause before a task that another holds is tried again."""
Delay = Annotated[
    str, typer.Option("--in", "-i", help="When it can be claimed: seconds from now, or 5m.")
]


@grouped(opened=opening)
def ins(
    *,
    queue: Queue,
    value: Annotated[
        list[str] | None,
        typer.Option(
            "--value", "-v", help="JSON; may be repeated: a task for each.", show_default=False
        ),
    ] = None,
    delay: Delay = "0",
    task_id: Annotated[
        str | None,
        typer.Option("--id", help="Its id. Default: a new one.", show_default=False),
    ] = None,
    skip_existing: Annotated[
        bool, typer.Option("--skip-existing", help="If the id exists, show that task instead.")
    ] = False,
    priority: Annotated[
        Literal["normal", "high", "urgent"],
        typer.Option(help="A head start of ten minutes, or an hour, over others."),
    ] = "normal",
    omit_values: HiddenValues = False,
    as_json: Json = False,
    opened: Opening,
) -> None:
    """Insert tasks, all or none.

    Examples:
      stickybus tasks ins -q mail -v '{"to": "ann@example.com"}'

      stickybus tasks ins -q mail -v 1 -v 2 -v 3 --in 5m
    """
    values = [value_of(text) for text in value or ["null"]]
    wait = seconds(delay)
    new = [
        Insert(
            queue=queue,
            value=one,
            delay=wait or None,
            id=task_id,
            skip_existing=skip_existing,
            priority=priority,
        )
        for one in values
    ]
    with opened() as work:
        modified = work.modify(*new)
    if modified.existing and not as_json:
        write("there already", modified.existing, omit_values=omit_values, as_json=False)
    else:
        write(
            "inserted",
            (*modified.inserted, *modified.existing),
            omit_values=omit_values,
            as_json=as_json,
        )


@grouped(opened=opening)
def mod(
    *,
    task: Id,
    to: Annotated[
        str | None,
        typer.Option("--to", "-Q", help="The queue that it moves to.", show_default=False),
    ] = None,
    value: Annotated[
        str | None,
        typer.Option("--value", "-v", help="Its new value, as JSON.", show_default=False),
    ] = None,
    delay: Delay = "0",
    reset: Annotated[
        bool, typer.Option("--reset", "-r", help="Set its attempts to 0, and clear its error.")
    ] = False,
    force: Force = False,
    omit_values: HiddenValues = False,
    as_json: Json = False,
    opened: Opening,
) -> None:
    """Change the newest version of a task, which can be claimed at once.

    Options that are not given leave it as it is.

    Examples:
      stickybus tasks mod -t 01a2 --to mail --reset

      stickybus tasks mod -t 01a2 -v '{"to": "bob@example.com"}' --force
    """
    changes: dict[str, Any] = {"queue": to, "delay": seconds(delay) or None}
    if value is not None:
        changes["value"] = value_of(value)
    if reset:
        changes |= {"attempt": 0, "err": ""}
    with opened() as work:
        found = read(work, task)
        changed = work.modify(found.change(**changes), claimant=_as(found, force=force)).changed
    write("changed", changed, omit_values=omit_values, as_json=as_json)


@grouped(opened=opening)
def rm(
    *,
    task: Annotated[
        list[str],
        typer.Option("--task", "-t", help="The id; may be repeated.", show_default=False),
    ],
    retries: Annotated[
        int,
        typer.Option(
            "--retries",
            "-r",
            min=0,
            help="Number of retries, if others hold or change it meanwhile.",
        ),
    ] = 10,
    force: Force = False,
    omit_values: HiddenValues = False,
    as_json: Json = False,
    opened: Opening,
) -> None:
    """Delete tasks at their newest versions, each on its own, and show them as they were.

    Examples:
      stickybus tasks rm -t 01a2

      stickybus tasks rm -t 01a2 -t 01a3 --force --json
    """
    deleted, left = list[Task](), list[str]()
    with opened() as work:
        for one in task:
            try:
                deleted.append(_delete(work, one, retries, force=force))
            except StickybusError as error:
                remark(f"task {one}: {error}")
                left.append(one)
    write("deleted", deleted, omit_values=omit_values, as_json=as_json)
    if left:
        raise typer.Exit(BAD_DATA)


def _delete(work: WorkQueue, task_id: str, retries: int, *, force: bool) -> Task:
    while True:
        found = work.tasks(ids=[task_id])
        if not found:
            raise DependencyError("there is no such task.")
        try:
            work.modify(Delete(found[0].ref), claimant=_as(found[0], force=force))
            return found[0]
        except DependencyError:
            if not retries:
                raise
        retries -= 1
        remark(f"task {task_id}: another holds or has changed it; again in {RETRY_SECONDS:g} s")
        threading.Event().wait(RETRY_SECONDS)


def _as(found: Task, *, force: bool) -> str | None:
    """In whose name a task is changed."""
    return found.claimant or None if force else None
