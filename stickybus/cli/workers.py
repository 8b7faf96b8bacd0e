"""`stickybus workers`: the work of each live node."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from stickybus.cli.entry_options import AnyTable
from stickybus.cli.moments import parsed_duration
from stickybus.cli.output import write_json, write_table
from stickybus.cli.target import Json, Url, inspected

COLUMNS = {
    "node": "NODE",
    "table": "TABLE",
    "queues": "SERVES",
    "running": "RUNNING",
    "processed": "PROCESSED",
    "failed": "FAILED",
    "since": "SINCE (UTC)",
}


def workers(
    *,
    age: Annotated[
        str, typer.Option(help="Count entries that ended within this time, such as 1h or 7d.")
    ] = "1d",
    table: AnyTable = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show the work of each live node: its queues, its running entries and its ended ones.

    It reads history as far back as --age.

    Examples:
      stickybus workers

      stickybus workers --age 1h --json
    """
    with inspected(url) as inspector:
        found = inspector.workers(table=table, age=parsed_duration(age))
    if as_json:
        write_json(msgspec.to_builtins(found))
        return
    rows = [
        {**msgspec.structs.asdict(worker), "queues": ", ".join(worker.queues)} for worker in found
    ]
    write_table("Workers", COLUMNS, rows, empty="No node is live.")
