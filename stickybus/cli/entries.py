"""`stickybus entries`: single entries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from queue_core.errors import EntryNotFoundError
from queue_core.model.states import State
from stickybus.cli.entry_changes import discard, release, remove, retry
from stickybus.cli.entry_options import (
    DEFAULT_TABLE,
    AnyTable,
    EventName,
    Key1,
    Key2,
    Limit,
    Payload,
    Queue,
    RecordId,
    keys_of,
)
from stickybus.cli.entry_output import facts_of, write_entries
from stickybus.cli.output import say, write_json, write_table
from stickybus.cli.target import Json, TableName, Url, inspected
from stickybus.cli.usage import UsageError

if TYPE_CHECKING:
    from queue_core.model.entry import Located

app = typer.Typer(
    no_args_is_help=True,
    help="List, show, explain, retry, discard, release and remove single entries.",
)

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


@app.command("list")
def list_entries(
    *,
    queue: Queue = None,
    event: EventName = None,
    state: Annotated[
        list[State] | None,
        typer.Option(
            case_sensitive=False,
            help="AVAILABLE, IN_PROCESSING or WAITING; may be repeated.",
            show_default=False,
        ),
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
    record_id: RecordId,
    *,
    archive: Annotated[
        str | None,
        typer.Option(
            help=(
                "Directory of the archive, if it is not in the database; without --url, only there."
            ),
            show_default=False,
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
    facts = facts_of(_found(record_id, table, url, archive), payload=payload)
    if as_json:
        write_json(facts)
        return
    if lacking := facts.get("not_archived"):
        facts["not_archived"] = ", ".join(lacking)
    if payload:
        facts["payload"] = json.dumps(facts["payload"], indent=2, ensure_ascii=False, default=repr)
    facts["headers"] = json.dumps(facts["headers"], ensure_ascii=False)
    facts["subscribers_done"] = json.dumps(facts["subscribers_done"], ensure_ascii=False)
    rows = [
        {"key": key, "shown": str(value)}
        for key, value in facts.items()
        if value not in {None, "", "{}"}
    ]
    write_table(
        f"Entry {record_id} of {table}", {"key": "COLUMN", "shown": "VALUE"}, rows, empty=""
    )


def _found(record_id: int, table: str, url: str | None, archive: str | None) -> Located:
    """The entry, from the database or else from the archive, which alone needs no database.

    Raises EntryNotFoundError.
    """
    nowhere = ""
    if url or archive is None:
        with inspected(url) as inspector:
            # History second: an entry may end in between.
            for read in (inspector.entries, inspector.history):
                for one in read(table=table, record_ids=[record_id]):
                    return one
        nowhere = ", neither live nor in history"
    if archive is not None:
        for one in _archived(archive, table, record_id):
            return one
        nowhere += f", nor in {archive}" if nowhere else f" in {archive}"
    raise EntryNotFoundError(f"{table}: there is no entry {record_id}{nowhere}.")


def _archived(archive: str, table: str, record_id: int) -> list[Located]:
    from history_pipeline.extras import check_arrow

    check_arrow()
    from history_pipeline import find_archived

    return find_archived(archive, table=table, record_ids=[record_id], limit=1)


@app.command()
def explain(
    record_id: RecordId,
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
    say(
        f"Entry {record_id} of {table} ({found.class_name}, {found.queue_name}) is "
        f"{found.state.value}."
    )
    say(str(found))


for command in (retry, discard, release, remove):
    app.command()(command)
