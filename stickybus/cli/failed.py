"""`stickybus failed`: dead letters, by their facts."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import typer

from queue_core.model.states import State
from stickybus.cli.bulk import Yes, change_all
from stickybus.cli.entry_options import (
    DEFAULT_TABLE,
    AllSubscribers,
    AnyTable,
    EventName,
    Key1,
    Key2,
    Keys,
    Limit,
    Payload,
    Queue,
    keys_of,
)
from stickybus.cli.entry_output import write_entries
from stickybus.cli.history import COLUMNS
from stickybus.cli.moments import moment
from stickybus.cli.option_groups import grouped
from stickybus.cli.target import Json, TableName, Url, inspected, opened

app = typer.Typer(
    no_args_is_help=True,
    help="List, retry and discard all failed entries that match: by event, error, time or key.",
)

ErrorType = Annotated[
    str | None,
    typer.Option("--error-type", help="Only errors of this type.", show_default=False),
]
ErrorText = Annotated[
    str | None,
    typer.Option("--error", help="Only errors that have this text.", show_default=False),
]
Since = Annotated[
    str | None,
    typer.Option(help="Failed since: an age (2h, 30d), or ISO 8601.", show_default=False),
]
Before = Annotated[str | None, typer.Option(help="Failed before, likewise.", show_default=False)]


class _Known(Keys):
    """The filters of failed entries, as the library takes them."""

    event_name: str | None
    error_type: str | None
    error_text: str | None
    finished_since: datetime | None
    finished_before: datetime | None


def _known(
    *,
    event: EventName = None,
    error_type: ErrorType = None,
    error: ErrorText = None,
    since: Since = None,
    before: Before = None,
    key1: Key1 = None,
    key2: Key2 = None,
) -> _Known:
    now = datetime.now(UTC)
    return {
        "event_name": event,
        **keys_of(key1, key2),
        "error_type": error_type,
        "error_text": error,
        "finished_since": None if since is None else moment(since, now=now),
        "finished_before": None if before is None else moment(before, now=now),
    }


@app.command("list")
@grouped(known=_known)
def list_failed(
    *,
    queue: Queue = None,
    known: _Known,
    limit: Limit = 50,
    payload: Payload = False,
    table: AnyTable = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List the entries that ended FAILED and that nobody has retried or discarded, newest first.

    `stickybus entries show ID` shows one with its whole traceback.

    Examples:
      stickybus failed list

      stickybus failed list --error-type TimeoutError --since 2h

      stickybus failed list --queue bus --event OrderPlaced --error "mail server" --json
    """
    with inspected(url) as inspector:
        found = inspector.history(
            table=table,
            queue_name=queue,
            dead_letters=True,
            limit=limit,
            **known,
        )
    title = f"Failed entries of {table or 'all tables'}"
    columns = {key: heading for key, heading in COLUMNS.items() if key != "processing_state"}
    write_entries(title, columns, found, payload=payload, as_json=as_json, limit=limit)


@app.command()
@grouped(known=_known)
def retry(
    *,
    queue: Queue = None,
    known: _Known,
    removed: Annotated[
        bool, typer.Option("--removed", help="Those that were REMOVED, not those that failed.")
    ] = False,
    all_subscribers: AllSubscribers = False,
    yes: Yes = False,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Retry all failed entries that match, in batches. Shows them only, unless --yes.

    Each is retried once: if this is stopped by Ctrl-C, or killed, run it again to go on. The exit
    code is 1 if some could not be retried, and 130 if it was stopped.

    Examples:
      stickybus failed retry --error-type TimeoutError --since 2h

      stickybus failed retry --error-type TimeoutError --since 2h --yes

      stickybus failed retry --removed --queue bus --since 10m --yes
    """
    from queue_core.bulk_changes import BulkChanges

    with opened(url, table) as engine:
        call = partial(
            BulkChanges(engine, queue).retry_all,
            states=State.REMOVED if removed else State.FAILED,
            all_subscribers=all_subscribers,
            **known,
        )
        change_all(call, "retried", yes=yes, as_json=as_json)


@app.command()
@grouped(known=_known)
def discard(
    *,
    queue: Queue = None,
    known: _Known,
    yes: Yes = False,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Discard all failed entries that match, in batches. Shows them only, unless --yes.

    They stay in history, and count as dead letters no more.

    Examples:
      stickybus failed discard --event Ping --before 30d

      stickybus failed discard --event Ping --before 30d --yes
    """
    from queue_core.bulk_changes import BulkChanges

    with opened(url, table) as engine:
        call = partial(BulkChanges(engine, queue).discard_all, **known)
        change_all(call, "discarded", yes=yes, as_json=as_json)
