"""Bugs that are planted into the tasks of work queues, which a model has to catch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sql.statements.work.history import WorkHistory
from sql.statements.work.tasks import WorkTasks
from work_queue.faults import Fault, FaultKind, refusal
from work_queue.modification import Renew, Replay
from work_queue.storage import modifying, task_changes, written
from work_queue.storage.moment import Moment


def _no_holder_is_asked(_moment: Moment, _row: object) -> bool:
    return False


def _holder_stays(moment: Moment, _arrival: datetime) -> str:
    return moment.claimant


def _versions_are_not_asked(self: Any, action: Any, moment: Moment) -> FaultKind | None:
    row = self._rows.get(action.task.id)
    if row is None:
        return task_changes.FAULTS[type(action)]
    return FaultKind.CLAIM if moment.held_by_another(row) else None


def _queues_are_not_asked(self: Any, action: Any, moment: Moment) -> FaultKind | None:
    return _judge(self, replace(action, task=replace(action.task, queue="")), moment)


def _renewals_are_not_judged(self: Any, action: Any, moment: Moment) -> FaultKind | None:
    fault = _judge(self, action, moment)
    return None if isinstance(action, Renew) and fault is FaultKind.CLAIM else fault


_judge = task_changes.TaskChanges._judge
_changed = task_changes.TaskChanges._changed
_count = written.WrittenTasks.count
_available = WorkTasks._available
_add = WorkHistory.add


def _version_stays(self: Any, place: int, action: Any, moment: Moment) -> dict[str, Any]:
    columns = _changed(self, place, action, moment)
    return columns | {"version": columns["version"] - 1}


def _renewal_resets(self: Any, place: int, action: Any, moment: Moment) -> dict[str, Any]:
    reset = {"claims": 0} if isinstance(action, Renew) else {}
    return _changed(self, place, action, moment) | reset


def _renewal_empties(self: Any, place: int, action: Any, moment: Moment) -> dict[str, Any]:
    emptied = {"value_json": None} if isinstance(action, Renew) else {}
    return _changed(self, place, action, moment) | emptied


def _removals_are_not_counted(self: Any, row: Any, moment: Moment, amount: int) -> None:
    if amount > 0:
        _count(self, row, moment, amount)


def _minutes_are_not_counted(self: Any, row: Any, moment: Moment, amount: int) -> None:
    self._counts[row.queue, None] += amount


def _unclaimed_only(self: WorkTasks, *columns: Any) -> Any:
    return _available(self, *columns).where(self.table.c.claims == 0)


def _one_fault(faults: Mapping[int, Fault]) -> None:
    if faults:
        raise refusal("the modification", [faults[min(faults)]])


CHANGES = task_changes.TaskChanges


def _history_tells_another(self: Any, connection: Any, ids: Any, *, now: datetime, by: str) -> None:
    _add(self, connection, ids, now=now, by="me")


def _nothing_is_kept(*_arguments: Any, **_options: Any) -> None:
    return


def _replay_keeps_attempts(self: Any, place: int, action: Any, moment: Moment) -> dict[str, Any]:
    columns = _changed(self, place, action, moment)
    if isinstance(action, Replay):
        columns["attempt"] = self._rows[action.task.id].attempt
    return columns


def _no_lease_has_a_place(*_arguments: Any) -> tuple[int, None]:
    return 0, None


BUGS: dict[str, tuple[Any, str, Any]] = {
    "no holder is asked": (Moment, "held_by_another", _no_holder_is_asked),
    "a released task keeps its holder": (Moment, "holder", _holder_stays),
    "versions are not asked": (CHANGES, "_judge", _versions_are_not_asked),
    "queues are not asked": (CHANGES, "_judge", _queues_are_not_asked),
    "anybody may renew": (CHANGES, "_judge", _renewals_are_not_judged),
    "a change keeps the version": (CHANGES, "_changed", _version_stays),
    "a renewal resets the claims": (CHANGES, "_changed", _renewal_resets),
    "a renewal empties the value": (CHANGES, "_changed", _renewal_empties),
    "an ended lease is not claimed": (WorkTasks, "_available", _unclaimed_only),
    "no lease has a place": (WorkTasks, "leases", _no_lease_has_a_place),
    "one fault hides the others": (modifying, "_refuse", _one_fault),
    "removals are not counted": (written.WrittenTasks, "count", _removals_are_not_counted),
    "nothing is kept": (WorkHistory, "add", _nothing_is_kept),
    "history tells another deleter": (WorkHistory, "add", _history_tells_another),
    "a replay keeps the attempts": (CHANGES, "_changed", _replay_keeps_attempts),
    "minutes are not counted": (written.WrittenTasks, "count", _minutes_are_not_counted),
}
"""What each replaces: an object, the name of its part, and the other part."""
