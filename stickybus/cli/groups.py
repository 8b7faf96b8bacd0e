"""`stickybus groups`: groups of entries, where they stand, and their seal."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from queue_core.model.group import GroupStatus
from stickybus.cli.entry_options import DEFAULT_TABLE, AnyQueue, AnyTable, Limit
from stickybus.cli.output import say, write_json, write_table
from stickybus.cli.target import Json, TableName, Url, inspected, opened

COLUMNS = {
    "table": "TABLE",
    "queue_name": "QUEUE",
    "group_id": "GROUP",
    "name": "NAME",
    "total": "MEMBERS",
    "live": "LIVE",
    "succeeded": "SUCCEEDED",
    "failed": "FAILED",
    "cancelled": "CANCELLED",
    "sealed_date": "SEALED (UTC)",
    "completed_date": "COMPLETE (UTC)",
}

app = typer.Typer(no_args_is_help=True, help="List, show and seal groups of entries.")

GroupId = Annotated[
    int, typer.Argument(metavar="ID", min=1, help="The group's id.", show_default=False)
]


@app.command("list")
def list_groups(
    *,
    table: AnyTable = None,
    queue: AnyQueue = None,
    incomplete: Annotated[
        bool, typer.Option("--incomplete", help="Only those that are not complete.")
    ] = False,
    limit: Limit = 100,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List groups, the newest first.

    Examples:
      stickybus groups list

      stickybus groups list --incomplete --queue shop:invoices --json
    """
    with inspected(url) as inspector:
        found = inspector.groups(table=table, queue_name=queue, incomplete=incomplete, limit=limit)
    _write(found, as_json=as_json)


@app.command()
def show(group: GroupId, *, table: AnyTable = None, url: Url = None, as_json: Json = False) -> None:
    """Show how many members a group has, and how many have ended.

    Examples:
      stickybus groups show 41

      stickybus groups show 41 --table notifications --json
    """
    with inspected(url) as inspector:
        found = inspector.group_status(group, table=table)
    _write([found], as_json=as_json)


@app.command()
def seal(
    group: GroupId, *, table: TableName = DEFAULT_TABLE, url: Url = None, as_json: Json = False
) -> None:
    """Seal a group: it takes no further members, and is complete once all have ended.

    A group that is sealed already is looked at once more.

    Examples:
      stickybus groups seal 41
    """
    from queue_core.grouping import Grouping

    with opened(url, table) as engine:
        newly = Grouping(engine, table).seal(group)
    if as_json:
        write_json({"sealed": newly})
    else:
        how = "is sealed" if newly else "was sealed before"
        say(f"group {group} {how}")


def _write(found: list[GroupStatus], *, as_json: bool) -> None:
    rows = [{**msgspec.to_builtins(one), "live": one.live} for one in found]
    if as_json:
        write_json(rows)
        return
    shown = [{**msgspec.structs.asdict(one), "live": one.live} for one in found]
    write_table("Groups", COLUMNS, shown, empty="There is no group.")
