"""The tasks of one modification: found and locked, judged, and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection

from sql.statements.work.history import WorkHistory
from sql.statements.work.tasks import WorkTasks
from work_queue.faults import Fault, FaultKind
from work_queue.modification import Action, Change, Delete, Depend, Insert, NamesTask, Renew, Replay
from work_queue.refs import TaskRef
from work_queue.storage.caller import Look, too_old
from work_queue.storage.ids import new_id
from work_queue.storage.moment import Moment
from work_queue.storage.rows import task_of
from work_queue.storage.written import Faults, WrittenTasks
from work_queue.values import UNREAD, Stored, encode

FAULTS = {
    Change: FaultKind.CHANGE,
    Renew: FaultKind.CHANGE,
    Replay: FaultKind.CHANGE,
    Delete: FaultKind.DELETE,
    Depend: FaultKind.DEPEND,
}


class TaskChanges:
    """The actions on tasks, with their places among all actions of the modification."""

    def __init__(self, actions: Sequence[Action], cap_bytes: int) -> None:
        self.inserts = dict[int, Insert]()
        self.named = dict[int, NamesTask]()
        self._values = dict[int, Stored]()
        for place, action in enumerate(actions):
            if isinstance(action, Insert):
                self.inserts[place] = action
            elif isinstance(action, NamesTask):
                self.named[place] = action
            if isinstance(action, Insert) or (
                isinstance(action, Change) and action.value is not UNREAD
            ):
                what = f"{type(action).__name__}: the value"
                self._values[place] = encode(action.value, cap_bytes, what=what)
        self._rows = dict[str, Any]()
        self._skipped = set[int]()
        self._latest = dict[str, Any]()
        """Tasks in which a caller's snapshot is behind, with values."""

    @property
    def lone_delete(self) -> TaskRef | None:
        """The task that is deleted, if nothing else is done with tasks."""
        if self.inserts or len(self.named) != 1:
            return None
        [only] = self.named.values()
        return only.task if isinstance(only, Delete) else None

    def examine(
        self, connection: Connection, tasks: WorkTasks, moment: Moment, look: Look | None
    ) -> Faults:
        """Lock the named tasks in the order of their ids, and return all faults.

        In a caller's transaction, which gives a `look`, only rows that were seen before are locked.
        Raises InvalidConnectionError if it can't see one that is there.
        """
        self._rows.clear()
        self._skipped.clear()
        self._latest.clear()
        own_ids = {place: one.id for place, one in self.inserts.items() if one.id is not None}
        shared = {one.task.id: isinstance(one, Depend) for one in self.named.values()}
        seen = {row.task_id: row for row in tasks.present(connection, list(own_ids.values()))}
        newer = set[str]()
        if look is not None:
            seen = self._still_there(connection, tasks, seen, look)
            there = {row.task_id for row in tasks.present(connection, list(shared))}
            newer = _committed(tasks, sorted(shared.keys() - there), look)
            shared = {one: share for one, share in shared.items() if one in there | newer}
        for share, ids in groupby(sorted(shared), key=shared.__getitem__):
            locked = tasks.lock(connection, list(ids), shared=share)
            self._rows |= {row.task_id: row for row in locked}
        if look is not None:
            _refuse_unseen(tasks, sorted(newer - self._rows.keys()), look)
        faults = Faults()
        for place, task_id in own_ids.items():
            self._collide(place, seen.get(task_id), faults)
        for place, action in self.named.items():
            fault = self._judge(action, moment)
            if fault is not None:
                faults[place] = Fault(fault, action.task)
        return faults

    def _still_there(
        self, connection: Connection, tasks: WorkTasks, seen: dict[str, Any], look: Look
    ) -> dict[str, Any]:
        """The tasks that a caller's transaction has seen, as they are now."""
        if not seen:
            return seen
        rows = look(lambda ours: tasks.by_ids(ours, list(seen), values=True))
        now = {row.task_id: row for row in rows}
        # The transaction has inserted the others itself, or they are deleted since. A row that its
        # snapshot shows is kept for it: this locks no gap.
        rest = tasks.lock(connection, sorted(seen.keys() - now.keys()), shared=True)
        self._latest |= {
            task_id: row for task_id, row in now.items() if _age(row) > _age(seen[task_id])
        }
        return {one: seen[one] for one in now} | self._latest | {row.task_id: row for row in rest}

    def _collide(self, place: int, row: Any, faults: Faults) -> None:
        if row is None:
            return
        if self.inserts[place].skip_existing:
            self._skipped.add(place)
        else:
            faults[place] = Fault(FaultKind.INSERT, TaskRef(row.task_id, row.version, row.queue))

    def _judge(self, action: NamesTask, moment: Moment) -> FaultKind | None:
        ref, row = action.task, self._rows.get(action.task.id)
        if row is None or row.version != ref.version or ref.queue not in {"", row.queue}:
            return FAULTS[type(action)]
        if not isinstance(action, Depend) and moment.held_by_another(row):
            return FaultKind.CLAIM
        return None

    def end(self, connection: Connection, tasks: WorkTasks, moment: Moment) -> WrittenTasks | None:
        """Do a lone delete, and count it, by one statement; None if it has written nothing."""
        ref = self.lone_delete
        if ref is None:
            return None
        end = {
            "of_task": ref.id,
            "of_version": ref.version,
            "of_queue": ref.queue,
            "now": moment.now,
            "by": moment.claimant,
            "finisher": moment.finisher,
        }
        rows = tasks.end(connection, end)
        if not rows:
            return None
        written = WrittenTasks()
        for row in rows:
            written.end(row, moment)
            if row.keeps_history:
                written.kept[row.queue] += 1
        return written

    def write(
        self, connection: Connection, tasks: WorkTasks, history: WorkHistory, moment: Moment
    ) -> WrittenTasks:
        """Write it all, after nothing was at fault.

        With the faults of what was written: ids that others took meanwhile. All is undone then.
        """
        written = WrittenTasks()
        gone = [one.task.id for one in self.named.values() if isinstance(one, Delete)]
        kept = [task_id for task_id in gone if self._rows[task_id].keeps_history]
        if kept:
            history.add(connection, kept, now=moment.now, by=moment.finisher)
        for task_id in kept:
            written.kept[self._rows[task_id].queue] += 1
        if gone:
            tasks.delete(connection, gone)
        for task_id in gone:
            written.end(self._rows[task_id], moment)
        changes = {
            place: self._changed(place, one, moment)
            for place, one in self.named.items()
            if isinstance(one, Change | Renew | Replay)
        }
        if changes:
            self._write_changes(connection, tasks, changes, written, moment)
        if self.inserts:
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
        asked = [
            one.task.id for one in self.named.values() if isinstance(one, Renew) and one.with_value
        ]
        read = {row.task_id: row for row in tasks.by_ids(connection, asked, values=True)}
        for place, values in changes.items():
            before = self._rows[self.named[place].task.id]
            after = read.get(before.task_id) or SimpleNamespace(**{**before._asdict(), **values})
            written.end(before, moment, after)
            written.count(after, moment, 1)
            has_value = before.task_id in read or place in self._values
            written.changed[place] = task_of(after, has_value=has_value)

    def _changed(
        self, place: int, action: Change | Renew | Replay, moment: Moment
    ) -> dict[str, Any]:
        """The columns that a change writes."""
        row = self._rows[action.task.id]
        if isinstance(action, Renew):
            arrival, claims = moment.arrival(action.seconds), row.claims
            if action.undo_claim:
                claims = max(0, claims - 1)
        elif isinstance(action, Replay):
            arrival, claims = moment.now, 0
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
            return values | {"claims": claims}
        if isinstance(action, Replay):
            begun = {"queue": action.queue, "claims": 0, "attempt": 0}
            return values | begun | {"err": None, "failed_in": None}
        return values | {
            "queue": action.queue or row.queue,
            "claims": claims,
            "attempt": action.attempt,
            "err": action.err or None,
            "failed_in": _failed_in(row, action),
            **(_stored(self._values[place]) if place in self._values else {}),
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
        # In one order, too: an insert waits for others of its id.
        in_order = sorted(own.values(), key=itemgetter("task_id"))
        taken = set(tasks.insert_new(connection, in_order))
        met = {str(self.inserts[place].id): place for place in self._skipped}
        for place, row in rows.items():
            if row["task_id"] not in taken:
                added = SimpleNamespace(**row)
                written.inserted[place] = task_of(added)
                written.count(added, moment, 1)
            elif self.inserts[place].skip_existing:
                met[row["task_id"]] = place
            else:
                found = tasks.present(connection, [row["task_id"]])
                version, queue = (found[0].version, found[0].queue) if found else (0, "")
                ref = TaskRef(row["task_id"], version, queue)
                written.faults[place] = Fault(FaultKind.INSERT, ref)
        if met:
            there = tasks.met(connection, [one for one in met if one not in self._latest])
            there += [row for task_id, row in self._latest.items() if task_id in met]
            written.existing |= {met[row.task_id]: task_of(row) for row in there}

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
            "failed_in": None,
            **_stored(self._values[place]),
        }


def _committed(tasks: WorkTasks, ids: Sequence[str], look: Look) -> set[str]:
    """Those of tasks that a caller's transaction does not see that are there."""
    return {row.task_id for row in look(lambda ours: tasks.present(ours, ids))} if ids else set()


def _refuse_unseen(tasks: WorkTasks, ids: Sequence[str], look: Look) -> None:
    """Raises InvalidConnectionError if these tasks are there, and the transaction has none.

    Those that it has deleted itself are locked.
    """
    for row in look(lambda ours: tasks.unlocked(ours, ids)) if ids else ():
        raise too_old(f"task {row.task_id!r} in {row.queue!r}")


def _age(row: Any) -> tuple[datetime, int]:
    """Grows with each write: also a task that was deleted, and inserted again, is newer."""
    return row.created_date, row.version


def _failed_in(row: Any, action: Change) -> str | None:
    """Where a task has failed that a change moves away, or has moved away before."""
    queue = action.queue or row.queue
    if not action.err or queue == row.failed_in:
        return None
    fails = (action.attempt, action.err) != (row.attempt, row.err or "")
    if row.failed_in is None and fails and queue != row.queue:
        return str(row.queue)
    return None if row.failed_in is None else str(row.failed_in)


def _stored(value: Stored) -> dict[str, Any]:
    return dict(zip(("value_json", "value_bytes"), value, strict=True))
