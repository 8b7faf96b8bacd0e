"""`stickybus recurring`: recurring schedules and their next dates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stickybus.cli.entry_options import AnyTable
from stickybus.cli.output import say, write_json, write_table
from stickybus.cli.target import Json, Url, inspected
from stickybus.cli.tasks_told import tasks_told

if TYPE_CHECKING:
    from queue_core.reading.schedules import ScheduleStatus

COLUMNS = {
    "table": "TABLE",
    "queue_name": "QUEUE",
    "name": "SCHEDULE",
    "class_name": "EVENT",
    "shown_rule": "RULE",
    "last_due": "LAST DUE (UTC)",
    "next_due": "NEXT DUE (UTC)",
}


def recurring(
    *,
    table: AnyTable = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show the recurring schedules: the rule of each, its last and its next due date.

    A handler's process declares them (`queue.recur`) and any node that serves the queue fires them,
    once for each date.

    Examples:
      stickybus recurring

      stickybus recurring --table notifications --json
    """
    with inspected(url) as inspector:
        inspector.check_table(table)
        found = inspector.schedules(table=table)
    if as_json:
        write_json(msgspec.to_builtins(found))
    else:
        write_schedules(found)
        if table is None and (told := tasks_told(url).schedules):
            say(f"\n{told}")


def write_schedules(found: list[ScheduleStatus]) -> None:
    """The schedules as a table."""
    rows = [
        {**msgspec.structs.asdict(schedule), "shown_rule": _shown(schedule.rule)}
        for schedule in found
    ]
    write_table("Recurring schedules", COLUMNS, rows, empty="There are no recurring schedules.")


def _shown(rule: dict[str, str]) -> str:
    """A rule in a line, such as `0 9 * * * (Europe/Berlin)` or `every 30 s`."""
    expression = rule.get("expression")
    if expression is None:
        return "can't be read"
    if rule.get("kind") == "interval":
        return f"every {expression} s"
    return f"{expression} ({rule.get('timezone', 'UTC')})"
