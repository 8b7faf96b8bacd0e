"""`stickybus queues`: changes of all that waits in a queue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, NamedTuple

import typer

from stickybus.cli.bulk import Yes, change_all
from stickybus.cli.entry_options import DEFAULT_TABLE, EventName, Key1, Key2, Keys, Queue, keys_of
from stickybus.cli.moments import aware, parsed_duration
from stickybus.cli.option_groups import grouped
from stickybus.cli.target import Json, TableName, Url, opened
from stickybus.cli.usage import UsageError

app = typer.Typer(
    no_args_is_help=True,
    help="Clear queues, and reschedule their waiting entries. Their sizes: stickybus status.",
)

AllQueues = Annotated[bool, typer.Option("--all", help="All queues of the table.")]


class _Filters(Keys):
    """Filters of entries, as the library takes them."""

    event_name: str | None


class _Chosen(NamedTuple):
    """The entries that a command changes."""

    queue_name: str | None
    filtered: bool
    filters: _Filters


def _chosen(
    *,
    queue: Queue = None,
    all_queues: AllQueues = False,
    event: EventName = None,
    key1: Key1 = None,
    key2: Key2 = None,
) -> _Chosen:
    if (queue is None) != all_queues:
        raise UsageError("give either --queue or --all")
    filtered = (event, key1, key2) != (None, None, None)
    return _Chosen(queue, filtered, {"event_name": event, **keys_of(key1, key2)})


@app.command()
@grouped(chosen=_chosen)
def clear(
    *,
    chosen: _Chosen,
    yes: Yes = False,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Remove all that has not started, in batches. Shows it only, unless --yes.

    Entries that run are left. The entries go to history as REMOVED: stickybus failed retry
    --removed brings them back. If this is stopped by Ctrl-C, or killed, run it again to go on.

    Examples:
      stickybus queues clear --queue bus

      stickybus queues clear --table notifications --queue shop:reminders --key1 4711 --yes

      stickybus queues clear --table notifications --all --yes
    """
    from queue_core.bulk_changes import BulkChanges

    with opened(url, table) as engine:
        changes = BulkChanges(engine, chosen.queue_name)
        call = partial(changes.remove_all, **chosen.filters) if chosen.filtered else changes.clear
        change_all(call, "removed", yes=yes, as_json=as_json)


@app.command()
@grouped(chosen=_chosen)
def reschedule(
    to: Annotated[
        str,
        typer.Argument(
            metavar="WHEN",
            help="now, a time from now (30m, 2h), or a date in ISO 8601.",
            show_default=False,
        ),
    ],
    *,
    chosen: _Chosen,
    yes: Yes = False,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Give all that has not started another date, in batches. Shows it only, unless --yes.

    Examples:
      stickybus queues reschedule now --table notifications --queue shop:reminders --yes

      stickybus queues reschedule 2h --queue bus --event OrderPlaced --yes

      stickybus queues reschedule 2026-01-31T09:00:00Z --table notifications --all
    """
    from queue_core.bulk_changes import BulkChanges

    with opened(url, table) as engine:
        changes = BulkChanges(engine, chosen.queue_name)
        call = partial(changes.reschedule_all, at=_date(to), **chosen.filters)
        change_all(call, "rescheduled", yes=yes, as_json=as_json)


def _date(text: str) -> datetime:
    now = datetime.now(UTC)
    try:
        return now + (timedelta() if text == "now" else parsed_duration(text))
    except (UsageError, OverflowError):
        try:
            return aware(text)
        except ValueError as error:
            raise UsageError(f"{error}; or write now, or after how long, such as 2h") from error
