"""Bugs that are planted into the schedules of work queues, which a model has to catch."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection

from sql.statements.work.schedules import WorkSchedules
from sql.statements.work.tasks import WorkTasks

_claim, _change = WorkTasks.claim, WorkSchedules.change


def _nobody_asks(self: WorkTasks, connection: Connection, claim: Mapping[str, Any]) -> Any:
    return _claim(self, connection, {**claim, "unless_due": ""})


def _goes_back(
    self: WorkSchedules, connection: Connection, queue: str, name: str, values: dict[str, Any]
) -> None:
    if values.get("last_due") is not None:
        values = values | {"next_due": values["last_due"] + timedelta(seconds=1)}
    _change(self, connection, queue, name, values)


def _stays(*_arguments: object) -> bool:
    return True


BUGS: dict[str, tuple[Any, str, Any]] = {
    "a claim does not ask what is due": (WorkTasks, "claim", _nobody_asks),
    "a schedule moves on by a second": (WorkSchedules, "change", _goes_back),
    "a schedule that was stopped stays": (WorkSchedules, "remove", _stays),
}
"""What each replaces: an object, the name of its part, and the other part."""
