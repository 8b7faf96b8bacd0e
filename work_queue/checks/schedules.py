"""A recurring schedule of a queue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from queue_core.errors import InvalidPostError, InvalidRequestError
from queue_core.model.names import name_fault
from queue_core.model.recurrence import Kind, parse
from work_queue.checks.arguments import not_allowed, queue
from work_queue.requests import ScheduleSetting

SOME_DATE = datetime(2000, 1, 1, tzinfo=UTC)
"""A rule that works from here on works from today on."""


def schedule_setting(
    of_queue: object, name: object, value: Any, *, cron: Any, every: Any, timezone: Any, missed: Any
) -> ScheduleSetting:
    """A schedule whose rule can work."""
    scheduled, named = queue(of_queue), schedule_name(name)
    try:
        rule = parse(cron, every, timezone, start=SOME_DATE, missed=missed)
    except InvalidPostError as error:
        raise InvalidRequestError(str(error), key=error.key, value=error.value) from error
    is_cron = rule.kind is Kind.CRON
    return ScheduleSetting(
        scheduled,
        named,
        value,
        cron=rule.expression if is_cron else None,
        every=None if is_cron else timedelta(seconds=float(rule.expression)),
        timezone=rule.timezone,
        missed=rule.missed,
    )


def schedule_name(value: object) -> str:
    """The name of a schedule."""
    if fault := name_fault(value):
        raise not_allowed("name", value, fault)
    return str(value)
