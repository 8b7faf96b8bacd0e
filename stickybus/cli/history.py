"""`stickybus history`: the ended entries."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypedDict

import msgspec
import typer

from queue_core.model.states import State
from sql.period import Period
from stickybus.cli.archive_options import SearchedArchive
from stickybus.cli.entry_options import (
    DEFAULT_TABLE,
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
from stickybus.cli.exit_codes import BAD_DATA
from stickybus.cli.moments import moment
from stickybus.cli.output import plural, remark, say, write_json, write_table
from stickybus.cli.progress import bar
from stickybus.cli.target import Json, TableName, Url, inspected, maintained, url_of
from stickybus.cli.usage import UsageError

if TYPE_CHECKING:
    from queue_core.model.entry import Located
    from queue_core.reading.filters import HistoryFilters
    from queue_core.reading.forgetting import Forgotten

app = typer.Typer(
    no_args_is_help=True, help="List, archive, replay, truncate, divide and forget ended entries."
)

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

FORGOTTEN = {
    "table": "TABLE",
    "live": "WAITING",
    "ended": "ENDED",
    "unposted": "UNPOSTED",
    "running": "RUNNING (LEFT)",
    "schedules": "SCHEDULES (LEFT)",
}

States = Annotated[
    list[State] | None,
    typer.Option(
        "--state",
        case_sensitive=False,
        help="PROCESSED, FAILED, REAPED or REMOVED; may be repeated.",
        show_default=False,
    ),
]


@app.command("list")
def list_history(
    *,
    queue: Queue = None,
    event: EventName = None,
    state: States = None,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="Only FAILED ones that nobody has tried again.")
    ] = False,
    key1: Key1 = None,
    key2: Key2 = None,
    since: Annotated[
        str | None,
        typer.Option(help="Finished since: an age (2h, 30d), or ISO 8601.", show_default=False),
    ] = None,
    before: Annotated[
        str | None, typer.Option(help="Finished before, likewise.", show_default=False)
    ] = None,
    archive: SearchedArchive = None,
    limit: Limit = 50,
    payload: Payload = False,
    table: AnyTable = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List entries of all tables that have ended, newest first; with --table by id.

    An archive is searched without database and Spark. That needs the extra `archive`.

    Examples:
      stickybus history list --dead-letters

      stickybus history list --state FAILED --since 1d

      stickybus history list --event push --key1 4711 --json

      stickybus history list --archive /var/archive --key1 4711
    """
    if archive is not None and dead_letters:
        raise UsageError(
            "--dead-letters needs the database: an archive does not say which "
            "entries were tried again"
        )
    now = datetime.now(UTC)
    keys = keys_of(key1, key2)
    filters: HistoryFilters = {
        "states": state,
        "finished_since": None if since is None else moment(since, now=now),
        "finished_before": None if before is None else moment(before, now=now),
        "search_key1": keys["search_key1"],
        "search_key2": keys["search_key2"],
    }
    where = _Where(table=table, queue_name=queue, event_name=event, limit=limit)
    if archive is not None:
        found = _archived(archive, where, filters)
    else:
        with inspected(url) as inspector:
            found = inspector.history(dead_letters=dead_letters, **where, **filters)
    title = f"{'History' if archive is None else 'Archive'} of {table or 'all tables'}"
    write_entries(title, COLUMNS, found, payload=payload, as_json=as_json, limit=limit)


class _Where(TypedDict):
    table: str | None
    queue_name: str | None
    event_name: str | None
    limit: int


def _archived(archive: str, where: _Where, filters: HistoryFilters) -> list[Located]:
    from history_pipeline.extras import check_arrow

    check_arrow()
    from history_pipeline import find_archived

    return find_archived(archive, **where, **filters)


@app.command()
def truncate(
    *,
    before: Annotated[
        str | None,
        typer.Option(
            help="Only rows that finished before: an age (2h, 30d), or ISO 8601.",
            show_default=False,
        ),
    ] = None,
    state: States = None,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Delete history of a table, while its queues run. Live entries are never touched.

    PostgreSQL and MariaDB empty the table at once if neither --before nor --state is given.
    Otherwise rows go in batches.

    Examples:
      stickybus history truncate --before 30d

      stickybus history truncate --table notifications --before 7d --state PROCESSED --state REAPED
    """
    until = None if before is None else moment(before, now=datetime.now(UTC))
    with (
        maintained(url, table) as maintenance,
        bar(f"truncating {table}_history", quiet=as_json) as progress,
    ):
        removed = maintenance.truncate(before=until, states=state, progress=progress)
    if as_json:
        write_json({"table": f"{table}_history", "removed": removed})
    else:
        say(f"{plural(removed, 'row')} removed from {table}_history")


@app.command()
def partition(
    *,
    by: Annotated[Period, typer.Option(help="The period of a partition, in UTC.")] = Period.MONTH,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Divide history of a table into partitions, while its queues run.

    truncate --before drops those that are old as a whole. Nodes make the next ones ahead; run again
    it does so, too. MySQL and MariaDB copy the table once, and outcomes wait meanwhile.

    Examples:
      stickybus history partition --by month

      stickybus history partition --table notifications --by day
    """
    from queue_core.dividing import partition_history

    found = partition_history(url_of(url), by=by, table=table)
    if as_json:
        write_json({"table": f"{table}_history", "partitions": [asdict(one) for one in found]})
        return
    rows = [{"name": one.name, "until": one.until} for one in found]
    columns = {"name": "PARTITION", "until": "ENDED BEFORE (UTC)"}
    write_table(f"Partitions of {table}_history", columns, rows, empty="")


@app.command()
def forget(
    *,
    key1: Key1 = None,
    key2: Key2 = None,
    queue: Queue = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete them; else only show them.")] = False,
    table: AnyTable = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Delete all entries with the search keys of one customer, waiting or ended, of all tables.

    Entries that were to be posted when others end are deleted, too: callbacks of groups, and
    payloads that wait behind a running entry with their key.

    The queues may run meanwhile. Without --yes it only shows the rows that it would delete. Entries
    that some node runs are left: exit code 1, run it again when they have ended. Recurring
    schedules with these keys go on, and archives are not touched.

    Examples:
      stickybus history forget --key2 4711

      stickybus history forget --key2 4711 --yes
    """
    if key1 is None and key2 is None:
        raise UsageError("give --key1, --key2 or both")
    with inspected(url) as inspector:
        inspector.check_table(table)
        tables = inspector.tables() if table is None else (table,)
    found = [
        _forgotten(url, one, queue, keys_of(key1, key2), yes=yes, quiet=as_json) for one in tables
    ]
    if as_json:
        write_json({"deleted": yes, "tables": msgspec.to_builtins(found)})
    else:
        _tell_forgotten(found, yes=yes)
    if yes and any(one.running for one in found):
        raise typer.Exit(BAD_DATA)


def _forgotten(
    url: str | None, table: str, queue: str | None, keys: Keys, *, yes: bool, quiet: bool
) -> Forgotten:
    with (
        maintained(url, table, queue) as maintenance,
        bar(f"forgetting in {table}", quiet=quiet) as progress,
    ):
        return maintenance.forget(**keys, dry_run=not yes, progress=progress)


def _tell_forgotten(found: list[Forgotten], *, yes: bool) -> None:
    rows = [
        {
            **msgspec.structs.asdict(one),
            "running": ", ".join(map(str, one.running)) or None,
            "schedules": ", ".join(one.schedules) or None,
        }
        for one in found
    ]
    write_table("Deleted" if yes else "Would be deleted", FORGOTTEN, rows, empty="")
    if not yes:
        say("Nothing was deleted: this was a dry run. To delete it, add --yes")
    elif any(one.running for one in found):
        remark("Entries that run were not touched: run it again when they have ended.")
