"""The recurring schedules of a database as their rows tell of them, for people who look."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Row


class ScheduleStatus(msgspec.Struct, kw_only=True):
    """One recurring schedule. Dates in UTC.

    `rule` has the texts `kind` (cron or interval), `expression`, `timezone`, `missed` and `start`; it is empty if this
    version can't read it. `last_due` is None before the first firing, `next_due` if it never fires again.
    """

    table: str
    queue_name: str
    name: str
    class_name: str
    rule: dict[str, str]
    last_due: datetime | None
    next_due: datetime | None


def status(row: Row[Any]) -> ScheduleStatus:
    """How the schedule of a row stands."""
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
