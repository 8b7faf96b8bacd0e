"""`stickybus keys`: idempotency keys, where they stand, and their release."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from queue_core.model.keyed import KeyState, KeyStatus
from stickybus.cli.entry_options import DEFAULT_TABLE, AnyQueue, AnyTable, Limit
from stickybus.cli.exit_codes import BAD_DATA
from stickybus.cli.output import remark, say, write_json, write_table
from stickybus.cli.target import Json, TableName, Url, inspected, opened

COLUMNS = {
    "table": "TABLE",
    "queue_name": "QUEUE",
    "key": "KEY",
    "state": "STATE",
    "record_id": "ENTRY",
    "keep": "KEPT",
    "ended_state": "ENDED",
    "kept_until": "UNTIL (UTC)",
}

app = typer.Typer(no_args_is_help=True, help="List, show and release idempotency keys.")

Queue = Annotated[str, typer.Option("--queue", help="The bus, or SERVICE:QUEUE.")]
Key = Annotated[str, typer.Argument(help="The key.", show_default=False)]


@app.command("list")
def list_keys(
    *,
    table: AnyTable = None,
    queue: AnyQueue = None,
    limit: Limit = 100,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List the keys that are taken, by queue and key.

    Examples:
      stickybus keys list

      stickybus keys list --queue shop:invoices --limit 20 --json
    """
    with inspected(url) as inspector:
        inspector.check_table(table)
        found = inspector.keys(table=table, queue_name=queue, limit=limit)
    _write(found, as_json=as_json)


@app.command()
def show(
    key: Key,
    *,
    queue: Queue = "bus",
    table: AnyTable = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show where one key stands: its entry, and until when it is kept.

    Examples:
      stickybus keys show invoice-41

      stickybus keys show invoice-41 --queue shop:invoices --json
    """
    with inspected(url) as inspector:
        inspector.check_table(table)
        found = inspector.key_status(queue, key, table=table)
    if found.state is KeyState.UNKNOWN and not as_json:
        remark(f"stickybus: no entry has the key {key} of {queue}")
    else:
        _write([found], as_json=as_json)
    if found.state is KeyState.UNKNOWN:
        raise typer.Exit(BAD_DATA)


@app.command()
def release(
    key: Key,
    *,
    queue: Queue = "bus",
    table: TableName = DEFAULT_TABLE,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Free a key by hand: the next post with it makes a new entry. An entry that lives goes on.

    One that was to run after it is posted at once.

    Examples:
      stickybus keys release invoice-41 --table notifications --queue shop:invoices
    """
    from queue_core.queue_keys import QueueKeys

    with opened(url, table) as engine:
        released = QueueKeys(engine, queue).release_key(key)
    if as_json:
        write_json({"released": released})
    elif released:
        say(f"The key {key} of {queue} is free.")
    else:
        remark(f"stickybus: no entry has the key {key} of {queue}")
    if not released:
        raise typer.Exit(BAD_DATA)


def _write(found: list[KeyStatus], *, as_json: bool) -> None:
    if as_json:
        write_json(msgspec.to_builtins(found))
        return
    rows = [msgspec.structs.asdict(one) for one in found]
    write_table("Keys", COLUMNS, rows, empty="No key is taken.")
