"""The recurring schedules of a database, as their rows show them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Row


class ScheduleStatus(msgspec.Struct, kw_only=True):
    """One recurring schedule. Dates are aware, in UTC.

    Attributes:
        table: The main table of its service.
        queue_name: Its queue, as `service:queue`.
        name: The name that it was declared with.
        class_name: The event name of its notifications.
        rule: The texts `kind` (cron or interval), `expression`, `timezone`, `missed` and `start`;
            empty if this version can't read them.
        last_due: The due date of the last firing; None before the first.
        next_due: The next due date; None if it never fires again.
    """

    table: str
    queue_name: str
    name: str
    class_name: str
    rule: dict[str, str]
    last_due: datetime | None
    next_due: datetime | None


def status(row: Row[Any]) -> ScheduleStatus:
    """The status of a row's schedule."""
    return ScheduleStatus(
        table=row.table_name,
        queue_name=row.queue_name,
        name=row.name,
        class_name=row.class_name,
        rule=_rule(row.rule),
        last_due=row.last_due,
        next_due=row.next_due,
    )


def _rule(text: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.MsgspecError, RecursionError):
        return {}
