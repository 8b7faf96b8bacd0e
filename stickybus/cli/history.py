"""`stickybus history`: what has ended."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from queue_core.model.entry import State
from queue_core.reading.history import History
from stickybus.cli.entries import (
    DEFAULT_TABLE,
    AnyTable,
    EventName,
    Key1,
    Key2,
    Limit,
    Payload,
    Queue,
    keys_of,
    write_entries,
)
from stickybus.cli.moments import moment
from stickybus.cli.output import console, errors, plural, write_json
from stickybus.cli.target import Json, TableName, Url, inspected, opened

app = typer.Typer(no_args_is_help=True, help="List, archive, replay and truncate what has ended.")

COLUMNS = {
    "table": "TABLE",
    "record_id": "ID",
    "queue_name": "QUEUE",
    "class_name": "EVENT",
    "processing_state": "STATE",
    "finished_date": "FINISHED (UTC)",
    "processing_owner": "NODE",
    "error_count": "ERRORS",
    "redispatch_count": "REDISPATCHED",
    "search_key1": "KEY1",
    "search_key2": "KEY2",
    "error": "LAST ERROR",
}

States = Annotated[
    list[State] | None,
    typer.Option(
        "--state", help="PROCESSED, FAILED, REAPED or REMOVED; may be repeated.", show_default=False
    ),
]


@app.command("list")
def list_history(
    *,
    queue: Queue = None,
    event: EventName = None,
    state: States = None,
    key1: Key1 = None,
    key2: Key2 = None,
    since: Annotated[
        str | None,
        typer.Option(help="Finished since: so long ago (2h, 30d), or ISO 8601.", show_default=False),
    ] = None,
    before: Annotated[str | None, typer.Option(help="Finished before, likewise.", show_default=False)] = None,
    limit: Limit = 50,
    payload: Payload = False,
    table: AnyTable = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List entries of all tables that have ended, newest first; with --table by id.

    Examples:
      stickybus history list --state FAILED --since 1d

      stickybus history list --event push --key1 4711 --json
    """
    now = datetime.now(UTC)
    with inspected(url) as inspector:
        found = inspector.history(
            table=table,
            queue_name=queue,
            event_name=event,
            states=state,
            finished_since=None if since is None else moment(since, now=now),
            finished_before=None if before is None else moment(before, now=now),
            limit=limit,
            **keys_of(key1, key2),
        )
    title = f"History of {table or 'all tables'}"
    write_entries(title, COLUMNS, found, payload=payload, as_json=as_json, limit=limit)


@app.command()
def truncate(
    *,
    before: Annotated[
        str | None,
        typer.Option(
            help="Only what finished before: so long ago (2h, 30d), or ISO 8601.", show_default=False
        ),
    ] = None,
    state: States = None,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Delete history of a table, while its queues run. Live entries are never touched.

    Without --before and --state all of it goes at once, by the shortest of locks; otherwise in batches.

    Examples:
      stickybus history truncate --before 30d

      stickybus history truncate --table notifications --before 7d --state PROCESSED --state REAPED
    """
    until = None if before is None else moment(before, now=datetime.now(UTC))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        opened(url, table) as engine,
        Progress(*columns, console=errors(), disable=as_json or not sys.stderr.isatty()) as progress,
    ):
        task = progress.add_task(f"truncating {table}_history", total=None)
        removed = History(engine.store, None).truncate(
            before=until,
            states=state,
            progress=lambda deleted, total: progress.update(task, completed=deleted, total=total),
        )
    if as_json:
        write_json({"table": f"{table}_history", "removed": removed})
    else:
        console().print(f"{plural(removed, 'row')} removed from {table}_history", markup=False)
