"""`stickybus tasks`: tasks of a work queue, claimed, written, read and deleted by hand."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, NoReturn

import typer

from queue_core.errors import StickybusError
from stickybus.cli import task_docs
from stickybus.cli.clearing import clear
from stickybus.cli.exit_codes import BAD_DATA
from stickybus.cli.option_groups import grouped
from stickybus.cli.output import errors, plural, write_json, write_table
from stickybus.cli.target import Json
from stickybus.cli.work import (
    AnyJson,
    Force,
    Lease,
    Opening,
    Prefixes,
    Queue,
    WithoutValues,
    facts,
    opening,
    row,
    seconds,
    value_of,
)
from work_queue.faults import DependencyError
from work_queue.modification import Delete, Insert
from work_queue.task import Task
from work_queue.work_queue import WorkQueue

RETRY_SECONDS = 3.0
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
STATS = {
    "queue": "QUEUE",
    "tasks": "SIZE",
    "future": "FUTURE",
    "available": "AVAILABLE",
    "claimed": "CLAIMED",
    "max_claims": "MAX CLAIMS",
}

app = typer.Typer(
    no_args_is_help=True,
    help="Claim, write, read and delete tasks and docs of a work queue, of a database or at a "
    "service's address.",
)

Id = Annotated[str, typer.Option("--task", "-t", help="The task's id.", show_default=False)]
Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", "-q", help="This queue; may be repeated.", show_default=False),
]


@app.command()
@grouped(opened=opening)
def claim(
    *,
    queue: Annotated[
        list[str],
        typer.Option("--queue", "-q", help="From this one; may be repeated.", show_default=False),
    ],
    at_once: Annotated[
        bool, typer.Option("--try", help="Don't wait: exit with 1 if there is none.")
    ] = False,
    lease: Lease = "30",
    timeout: Annotated[
        str | None,
        typer.Option(help="The longest wait. Default: for ever.", show_default=False),
    ] = None,
    as_json: Json = False,
    opened: Opening,
) -> None:
    """Claim a task, and show it. Waits until there is one.

    Nobody else can claim it until the lease ends. Give --claimant to change or delete it by then.

    Examples:
      stickybus tasks claim -q mail --claimant ann

      stickybus tasks claim -q mail -q news --try -d 5m
    """
    wait = 0.0 if at_once else None if timeout is None else seconds(timeout)
    with opened() as work:
        found = work.claim_many(*queue, limit=1, lease_seconds=seconds(lease), timeout_seconds=wait)
    if not found:
        _none(f"no task can be claimed in {', '.join(queue)}")
    _write("claimed", found, as_json=as_json)


@app.command()
@grouped(opened=opening)
def tryclaimid(
    *,
    task: Id,
    queue: Queue = "",
    lease: Lease = "30",
    as_json: Json = False,
    opened: Opening,
) -> None:
    """Claim one certain task, if it can be claimed now, and show it.

    Examples:
      stickybus tasks tryclaimid -t 01a2 --claimant ann
    """
    with opened() as work:
        found = _read(work, task, queue)
        if found.at > work.time():
            holder = f"{found.claimant} holds it" if found.claimant else "nobody can claim it"
            _none(f"{holder} until {found.at.isoformat()}")
        changed = work.modify(found.renew(seconds(lease))).changed
    _write("claimed", changed, as_json=as_json)


@app.command()
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
    delay: Annotated[
        str, typer.Option("--in", "-i", help="When it can be claimed: seconds from now, or 5m.")
    ] = "0",
    task_id: Annotated[
        str | None,
        typer.Option("--id", help="Its id. Default: a new one.", show_default=False),
    ] = None,
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
    new = [Insert(queue=queue, value=one, delay=wait or None, id=task_id) for one in values]
    with opened() as work:
        _write("inserted", work.modify(*new).inserted, as_json=as_json)


@app.command()
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
    delay: Annotated[
        str, typer.Option("--in", "-i", help="When it can be claimed: seconds from now, or 5m.")
    ] = "0",
    reset: Annotated[
        bool, typer.Option("--reset", "-r", help="Set its attempts to 0, and clear its error.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
    opened: Opening,
) -> None:
    """Change the newest version of a task. What is not given stays; it can be claimed at once.

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
        found = _read(work, task)
        changed = work.modify(found.change(**changes), claimant=_as(found, force=force)).changed
    _write("changed", changed, as_json=as_json)


@app.command()
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
            "--retries", "-r", min=0, help="How often again, if others hold or change it meanwhile."
        ),
    ] = 10,
    force: Force = False,
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
                errors().print(f"task {one}: {error}", markup=False)
                left.append(one)
    _write("deleted", deleted, as_json=as_json)
    if left:
        raise typer.Exit(BAD_DATA)


app.command()(clear)


@app.command()
@grouped(opened=opening)
def ts(
    *,
    queue: Annotated[
        str | None,
        typer.Option("--queue", "-q", help="Those of this queue.", show_default=False),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option("--task", "-t", help="Only this id; may be repeated.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most this number; 0: all.")] = 100,
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
    if as_json:
        write_json([facts(one) for one in found])
        return
    columns = {key: head for key, head in COLUMNS.items() if key != "value" or not omit_values}
    write_table("Tasks", columns, [row(one) for one in found], empty="No task.")


@app.command("stats")
@app.command("qs")
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


@app.command()
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


for command in (task_docs.docs, task_docs.ns):
    app.command()(command)
app.command("doc-put")(task_docs.doc_put)
app.command("doc-rm")(task_docs.doc_rm)


def _read(work: WorkQueue, task_id: str, queue: str = "") -> Task:
    found = work.tasks(queue or None, ids=[task_id])
    if not found:
        _none(f"there is no task {task_id}" + (f" in {queue}" if queue else ""))
    return found[0]


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
        errors().print(
            f"task {task_id}: another holds or has changed it; again in {RETRY_SECONDS:g} s",
            markup=False,
        )
        threading.Event().wait(RETRY_SECONDS)


def _as(found: Task, *, force: bool) -> str | None:
    """In whose name a task is changed."""
    return found.claimant or None if force else None


def _write(done: str, tasks: Sequence[Task], *, as_json: bool) -> None:
    if as_json:
        write_json([facts(one) for one in tasks])
        return
    write_table(
        f"{plural(len(tasks), 'task')} {done}",
        COLUMNS,
        [row(one) for one in tasks],
        empty=f"No task was {done}.",
    )


def _none(why: str) -> NoReturn:
    errors().print(f"stickybus: {why}", markup=False)
    raise typer.Exit(BAD_DATA)
