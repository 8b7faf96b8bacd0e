"""`stickybus order`: order keys that are held."""

from __future__ import annotations

import msgspec
import typer

from stickybus.cli.entry_options import AnyTable
from stickybus.cli.output import write_json, write_table
from stickybus.cli.target import Json, Url, inspected

app = typer.Typer(no_args_is_help=True, help="List the order keys that a failed entry holds up.")

COLUMNS = {
    "table": "TABLE",
    "queue_name": "QUEUE",
    "order_key": "KEY",
    "record_id": "FAILED ENTRY",
    "held_since": "SINCE (UTC)",
    "waiting": "WAITING",
}


@app.callback()
def order() -> None:
    """Entries that run one after the other."""


@app.command()
def held(*, table: AnyTable = None, url: Url = None, as_json: Json = False) -> None:
    """List the order keys whose entries wait because one of them has failed.

    `stickybus entries retry` of the failed entry lets it run again, and the others follow;
    `stickybus entries discard` lets them go on without it.

    Examples:
      stickybus order held

      stickybus order held --table notifications --json
    """
    with inspected(url) as inspector:
        found = [msgspec.structs.asdict(key) for key in inspector.held_keys(table=table)]
    if as_json:
        write_json(found)
        return
    write_table("Held order keys", COLUMNS, found, empty="No order key is held.")
