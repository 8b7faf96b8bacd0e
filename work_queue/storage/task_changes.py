"""The tasks of one modification: found and locked, judged, and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection

from sql.statements.work.tasks import WorkTasks
from work_queue.faults import Fault, FaultKind
from work_queue.modification import Action, Change, Delete, Depend, Insert, Renew
from work_queue.refs import TaskRef
from work_queue.storage.ids import new_id
from work_queue.storage.moment import Moment
from work_queue.storage.rows import task_of
from work_queue.storage.written import Faults, WrittenTasks
from work_queue.values import Stored, encode

FAULTS = {
    Change: FaultKind.CHANGE,
    Renew: FaultKind.CHANGE,
    Delete: FaultKind.DELETE,
    Depend: FaultKind.DEPEND,
}


class TaskChanges:
    """The actions on tasks, with their places among all actions of the modification."""

    def __init__(self, actions: Sequence[Action], cap_bytes: int) -> None:
        self.inserts = dict[int, Insert]()
        self.named = dict[int, Change | Delete | Depend | Renew]()
        self._values = dict[int, Stored]()
        for place, action in enumerate(actions):
            if isinstance(action, Insert):
                self.inserts[place] = action
            elif isinstance(action, Change | Delete | Depend | Renew):
                self.named[place] = action
            if isinstance(action, Insert | Change):
                what = f"{type(action).__name__}: the value"
                self._values[place] = encode(action.value, cap_bytes, what=what)
        self._rows = dict[str, Any]()
        self._skipped = set[int]()

    def examine(
        self, connection: Connection, tasks: WorkTasks, moment: Moment, *, borrowed: bool
    ) -> Faults:
        """Lock what is named, and return all that is at fault.

        In a caller's transaction only rows that were seen before are locked: where nothing is
        found, InnoDB would lock the gap, and keep others from inserting.
        """
        self._rows.clear()
        self._skipped.clear()
        own_ids = {place: one.id for place, one in self.inserts.items() if one.id is not None}
        exclusive = [one.task.id for one in self.named.values() if not isinstance(one, Depend)]
        shared = [one.task.id for one in self.named.values() if isinstance(one, Depend)]
        seen = {row.task_id: row for row in tasks.present(connection, list(own_ids.values()))}
        if borrowed and self.named:
            there = {row.task_id for row in tasks.present(connection, exclusive + shared)}
            exclusive = [task_id for task_id in exclusive if task_id in there]
            shared = [task_id for task_id in shared if task_id in there]
        for ids, share in ((exclusive, False), (shared, True)):
            if ids:
                locked = tasks.lock(connection, ids, shared=share)
                self._rows |= {row.task_id: row for row in locked}
        faults = Faults()
        for place, task_id in own_ids.items():
            self._collide(place, seen.get(task_id), faults)
        for place, action in self.named.items():
            fault = self._judge(action, moment)
            if fault is not None:
                faults[place] = Fault(fault, action.task)
        return faults

    def _collide(self, place: int, row: Any, faults: Faults) -> None:
        if row is None:
            return
        if self.inserts[place].skip_existing:
            self._skipped.add(place)
        else:
            faults[place] = Fault(FaultKind.INSERT, TaskRef(row.task_id, row.version, row.queue))

    def _judge(self, action: Change | Delete | Depend | Renew, moment: Moment) -> FaultKind | None:
        ref, row = action.task, self._rows.get(action.task.id)
        if row is None or row.version != ref.version or ref.queue not in {"", row.queue}:
            return FAULTS[type(action)]
        if not isinstance(action, Depend) and moment.held_by_another(row):
            return FaultKind.CLAIM
        return None

    def write(self, connection: Connection, tasks: WorkTasks, moment: Moment) -> WrittenTasks:
        """Write it all, after nothing was at fault.

        With the faults of what was written: ids that others took meanwhile. All is undone then.
        """
        written = WrittenTasks()
        gone = [one.task.id for one in self.named.values() if isinstance(one, Delete)]
        if gone:
            tasks.delete(connection, gone)
        for task_id in gone:
            written.count(self._rows[task_id], moment, -1)
        changes = {
            place: self._changed(place, one, moment)
            for place, one in self.named.items()
            if isinstance(one, Change | Renew)
        }
        self._write_changes(connection, tasks, changes, written, moment)
        self._insert(connection, tasks, written, moment)
        return written

    def _write_changes(
        self,
        connection: Connection,
        tasks: WorkTasks,
        changes: Mapping[int, dict[str, Any]],
        written: WrittenTasks,
        moment: Moment,
    ) -> None:
        kinds: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for place, values in changes.items():
            task_id = self.named[place].task.id
            kinds.setdefault(tuple(values), []).append({"of_task": task_id, **values})
        for rows in kinds.values():
            tasks.change(connection, sorted(rows, key=lambda row: row["of_task"]))
        renewed = [
            self.named[place].task.id for place, values in changes.items() if "queue" not in values
        ]
        read = {row.task_id: row for row in tasks.by_ids(connection, renewed, values=True)}
        for place, values in changes.items():
            before = self._rows[self.named[place].task.id]
            after = read.get(before.task_id) or SimpleNamespace(**{**before._asdict(), **values})
            written.count(before, moment, -1)
            written.count(after, moment, 1)
            written.changed[place] = task_of(after)

    def _changed(self, place: int, action: Change | Renew, moment: Moment) -> dict[str, Any]:
        """The columns that a change writes."""
        row = self._rows[action.task.id]
        if isinstance(action, Renew):
            arrival, claims = moment.arrival(action.seconds), row.claims
        else:
            arrival = moment.arrival(action.delay, action.at)
            claims = 0 if action.reset_claims else row.claims
        values: dict[str, Any] = {
            "version": row.version + 1,
            "arrival_date": arrival,
            "lease_date": arrival if claims and arrival > moment.now else None,
            "claimant": moment.holder(arrival),
            "modified_date": moment.now,
        }
        if isinstance(action, Renew):
            return values
        return values | {
            "queue": action.queue or row.queue,
            "claims": claims,
            "attempt": action.attempt,
            "err": action.err or None,
            **_stored(self._values[place]),
        }

    def _insert(
        self, connection: Connection, tasks: WorkTasks, written: WrittenTasks, moment: Moment
    ) -> None:
        rows = {
            place: self._inserted(place, one, moment)
            for place, one in self.inserts.items()
            if place not in self._skipped
        }
        new = {place: row for place, row in rows.items() if self.inserts[place].id is None}
        own = {place: row for place, row in rows.items() if place not in new}
        if new:
            tasks.insert(connection, list(new.values()))
        taken = set(tasks.insert_new(connection, list(own.values())))
        for place, row in rows.items():
            if row["task_id"] not in taken:
                added = SimpleNamespace(**row)
                written.inserted[place] = task_of(added)
                written.count(added, moment, 1)
            elif not self.inserts[place].skip_existing:
                found = tasks.present(connection, [row["task_id"]])
                version, queue = (found[0].version, found[0].queue) if found else (0, "")
                ref = TaskRef(row["task_id"], version, queue)
                written.faults[place] = Fault(FaultKind.INSERT, ref)

    def _inserted(self, place: int, action: Insert, moment: Moment) -> dict[str, Any]:
        arrival = moment.arrival(action.delay, action.at)
        return {
            "task_id": action.id or new_id(moment.now),
            "queue": action.queue,
            "version": 0,
            "arrival_date": arrival,
            "lease_date": None,
            "claimant": moment.holder(arrival),
            "claims": 0,
            "attempt": action.attempt,
            "created_date": moment.now,
            "modified_date": moment.now,
            "err": action.err or None,
            **_stored(self._values[place]),
        }


def _stored(value: Stored) -> dict[str, Any]:
    return dict(zip(("value_json", "value_bytes"), value, strict=True))
