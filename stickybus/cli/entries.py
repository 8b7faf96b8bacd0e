"""`stickybus entries`: single entries."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from queue_core.errors import EntryNotChangeableError, EntryNotFoundError
from queue_core.maintenance import Maintenance, RetryOptions
from queue_core.model.entry import Entry, State
from queue_core.storage.filter import Filter
from stickybus.cli.entry_options import (
    DEFAULT_TABLE,
    AnyTable,
    EventName,
    Key1,
    Key2,
    Limit,
    Payload,
    Queue,
    keys_of,
)
from stickybus.cli.entry_output import facts_of, write_entries
from stickybus.cli.moments import duration
from stickybus.cli.output import console, errors, plural, write_json, write_table
from stickybus.cli.target import Json, TableName, Url, inspected, maintained
from stickybus.cli.usage import UsageError

app = typer.Typer(
    no_args_is_help=True,
    help="List, show, explain, retry, discard, release and remove single entries.",
)

BAD_DATA = 1

LIVE_COLUMNS = {
    "table": "TABLE",
    "record_id": "ID",
    "queue_name": "QUEUE",
    "class_name": "EVENT",
    "processing_state": "STATE",
    "effective_date": "DUE (UTC)",
    "lane": "LANE",
    "error_count": "ERRORS",
    "search_key1": "KEY1",
    "search_key2": "KEY2",
}

Ids = Annotated[list[int], typer.Argument(metavar="ID...", help="Record ids.", show_default=False)]


@app.command("list")
def list_entries(
    *,
    queue: Queue = None,
    event: EventName = None,
    state: Annotated[
        list[State] | None,
        typer.Option(help="AVAILABLE or IN_PROCESSING; may be repeated.", show_default=False),
    ] = None,
    key1: Key1 = None,
    key2: Key2 = None,
    limit: Limit = 50,
    after: Annotated[
        int | None,
        typer.Option(help="Only higher ids: the next page. With --table.", show_default=False),
    ] = None,
    payload: Payload = False,
    table: AnyTable = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List live entries of all tables, oldest id first; ended ones: `stickybus history list`.

    Examples:
      stickybus entries list --queue bus --key1 4711

      stickybus entries list --table notifications --limit 500 --json

      stickybus entries list --table notifications --after 4711
    """
    if after is not None and table is None:
        raise UsageError("--after takes --table: ids are those of one table")
    with inspected(url) as inspector:
        found = inspector.entries(
            table=table,
            queue_name=queue,
            event_name=event,
            states=state,
            limit=limit,
            after_id=after,
            **keys_of(key1, key2),
        )
    title = f"Live entries of {table or 'all tables'}"
    write_entries(title, LIVE_COLUMNS, found, payload=payload, as_json=as_json, limit=limit)


@app.command()
def show(
    record_id: Annotated[int, typer.Argument(metavar="ID", help="Record id.", show_default=False)],
    *,
    archive: Annotated[
        str | None,
        typer.Option(
            help="Directory of the archive, if it is not in the database.", show_default=False
        ),
    ] = None,
    payload: Payload = False,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show all columns of an entry: live, in history, or in the archive.

    Examples:
      stickybus entries show 4711 --payload --json

      stickybus entries show 4711 --archive /var/archive
    """
    with inspected(url) as inspector:
        located = inspector.entries(table=table, record_ids=[record_id])
        # History second: an entry may end in between.
        located = located or inspector.history(table=table, record_ids=[record_id])
    found = [one.entry for one in located]
    if not found and archive is not None:
        found = _archived(archive, table, record_id)
    if not found:
        there = "neither live nor in history" + (
            f", nor in {archive}" if archive is not None else ""
        )
        raise EntryNotFoundError(f"{table}: there is no entry {record_id}, {there}.")
    facts = facts_of(found[0], payload=payload)
    if as_json:
        write_json(facts)
        return
    if payload:
        facts["payload"] = json.dumps(facts["payload"], indent=2, ensure_ascii=False, default=repr)
    facts["headers"] = json.dumps(facts["headers"], ensure_ascii=False)
    facts["subscribers_done"] = json.dumps(facts["subscribers_done"], ensure_ascii=False)
    rows = [
        {"key": key, "value": str(value)}
        for key, value in facts.items()
        if value not in {None, "", "{}"}
    ]
    write_table(
        f"Entry {record_id} of {table}", {"key": "COLUMN", "value": "VALUE"}, rows, empty=""
    )


def _archived(archive: str, table: str, record_id: int) -> list[Entry]:
    from history_pipeline.job import job_session

    with job_session("stickybus entries") as spark:
        from history_pipeline.archive import archived_entry

        row = archived_entry(spark, archive, record_id, table)
    return [Entry(**{**row, "processing_state": State(row["processing_state"])})] if row else []


@app.command()
def explain(
    record_id: Annotated[int, typer.Argument(metavar="ID", help="Record id.", show_default=False)],
    *,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Tell why an entry is not running: a line for each reason.

    It may be paused, not due, wait for its retry, lack a node that handles it, and so on. An entry
    that runs, or has ended, has one reason that says so.

    Examples:
      stickybus entries explain 4711

      stickybus entries explain 4711 --table notifications --json
    """
    with inspected(url) as inspector:
        found = inspector.explain(record_id, table=table)
    if as_json:
        write_json(msgspec.to_builtins(found))
        return
    console().print(
        f"Entry {record_id} of {table} ({found.class_name}, {found.queue_name}) is {found.state.value}.",
        markup=False,
        soft_wrap=True,
    )
    console().print(str(found), markup=False, soft_wrap=True)


@app.command()
def retry(
    record_ids: Ids,
    *,
    all_subscribers: Annotated[
        bool, typer.Option("--all-subscribers", help="Run those that had succeeded, too.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also entries that were tried again before.")
    ] = False,
    wait: Annotated[
        str | None,
        typer.Option(
            help="Wait for the end of each, at most so long (10s, 5m), and show how it ended.",
            show_default=False,
        ),
    ] = None,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Run entries again that ended FAILED or REMOVED: each is posted anew, and its new id is told.

    Subscribers that had succeeded don't run. An entry that was tried again before is refused,
    unless that failed too. All are tried; if one can't be, or with --wait has not succeeded, the
    exit code is 1. To retry all that match: stickybus failed retry.

    Examples:
      stickybus entries retry 4711

      stickybus entries retry 4711 --wait 30s

      stickybus entries retry 4711 4712 --table notifications
    """
    seconds = None if wait is None else duration(wait).total_seconds()
    with maintained(url, table) as maintenance, inspected(url) as inspector:

        def one(record_id: int) -> dict[str, Any]:
            options: RetryOptions = {"all_subscribers": all_subscribers, "force": force}
            try:
                if seconds is not None:
                    return _told(maintenance, record_id, seconds, options)
                return {"new_id": maintenance.retry(record_id, **options)}
            except EntryNotFoundError as error:
                live = inspector.entries(table=table, record_ids=[record_id])
                if not live:
                    raise
                raise EntryNotChangeableError(
                    f"{table}: entry {record_id} is {live[0].entry.processing_state.value}; only FAILED and REMOVED "
                    "ones can be tried again. Nothing was written."
                ) from error

        _each(
            record_ids,
            one,
            lambda done: (
                f"entry {done['record_id']} is tried again as {done['new_id']}"
                + (f", which is {done['state']}" if "state" in done else "")
            ),
            as_json=as_json,
        )


def _told(
    maintenance: Maintenance, record_id: int, seconds: float, options: RetryOptions
) -> dict[str, Any]:
    """Retry an entry and wait for its end."""
    outcome = maintenance.retry_and_wait(record_id, timeout_seconds=seconds, **options)
    told: dict[str, Any] = {"new_id": outcome.record_id, "state": outcome.state}
    if outcome.state is not State.PROCESSED:
        how = "" if outcome.ended else f" after {seconds:g} s, and goes on"
        reason = f"\n{outcome.last_error}" if outcome.last_error else ""
        runs = f" ({plural(outcome.error_count, 'failed run')})" if outcome.error_count else ""
        told["error"] = (
            f"entry {record_id} is tried again as {outcome.record_id}, which is "
            f"{outcome.state or 'no longer in history'}{runs}{how}{reason}"
        )
    return told


@app.command()
def discard(
    record_ids: Ids,
    *,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Discard dead letters: entries that ended FAILED, and that nobody is going to try again.

    They stay in history, and count as dead letters no more. All are discarded; if one can't be, the
    exit code is 1.

    Examples:
      stickybus entries discard 4711 4712
    """
    with maintained(url, table) as maintenance:
        _each(
            record_ids,
            lambda record_id: {"discarded": maintenance.discard(record_id)},
            lambda done: (
                f"entry {done['record_id']} is {'' if done['discarded'] else 'already '}discarded"
            ),
            as_json=as_json,
        )


@app.command()
def release(
    record_ids: Ids,
    *,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Release entries that wait for others: they run, whatever becomes of those.

    `stickybus entries list --state WAITING` shows them, and `stickybus entries explain` for which
    each waits. All are released; if one can't be, the exit code is 1.

    Examples:
      stickybus entries release 4711 4712
    """
    with maintained(url, table) as maintenance:
        _each(
            record_ids,
            lambda record_id: {"released": maintenance.release(record_id)},
            lambda done: (
                f"entry {done['record_id']} "
                f"{'is released' if done['released'] else 'waits for no other'}"
            ),
            as_json=as_json,
        )


@app.command()
def remove(
    record_ids: Annotated[
        list[int] | None, typer.Argument(metavar="[ID...]", help="Record ids.", show_default=False)
    ] = None,
    *,
    key1: Key1 = None,
    key2: Key2 = None,
    queue: Queue = None,
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Remove entries that have not started, by ids or by search keys.

    They go to history as REMOVED. By keys, entries that run are left.

    Examples:
      stickybus entries remove 4711 4712

      stickybus entries remove --table notifications --queue invoices:dunning --key1 4711
    """
    by_keys = key1 is not None or key2 is not None
    if by_keys == bool(record_ids):
        raise UsageError("give either record ids, or --key1 or --key2")
    with maintained(url, table, queue) as maintenance:
        if by_keys:
            removed = maintenance.remove(None, Filter(**keys_of(key1, key2)))
            if as_json:
                write_json({"removed": removed})
            else:
                console().print(f"{plural(removed, 'entry')} removed", markup=False)
            return
        _each(
            record_ids or [],
            lambda record_id: {"removed": maintenance.remove(record_id)},
            lambda done: f"entry {done['record_id']} removed",
            as_json=as_json,
        )


def _each(
    record_ids: list[int],
    one: Callable[[int], dict[str, Any]],
    sentence: Callable[[dict[str, Any]], str],
    *,
    as_json: bool,
) -> None:
    """Do `one` for each id, and show its result; one that can't be done makes the exit code 1."""
    told: list[dict[str, Any]] = []
    for record_id in record_ids:
        try:
            told.append({"record_id": record_id, **one(record_id)})
        except (EntryNotFoundError, EntryNotChangeableError) as error:
            told.append({"record_id": record_id, "error": str(error)})
    if as_json:
        write_json(told)
    else:
        for done in told:
            target = errors() if "error" in done else console()
            target.print(done["error"] if "error" in done else sentence(done), markup=False)
    if any("error" in done for done in told):
        raise typer.Exit(BAD_DATA)
