"""One modification in one transaction: examined as a whole, then written as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection

from sql.statements.work.counts import WorkCounts
from sql.statements.work.docs import WorkDocs
from sql.statements.work.history import WorkHistory
from sql.statements.work.limits import WorkLimits
from sql.statements.work.schedules import WorkSchedules
from sql.statements.work.tasks import WorkTasks
from work_queue.faults import Fault, refusal
from work_queue.modification import Action
from work_queue.modified import Modified
from work_queue.storage.caller import Caller
from work_queue.storage.doc_changes import DocChanges
from work_queue.storage.moment import Moment
from work_queue.storage.task_changes import TaskChanges
from work_queue.storage.written import WrittenDocs

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements on the work queue's tables."""

    tasks: WorkTasks
    history: WorkHistory
    limits: WorkLimits
    schedules: WorkSchedules
    docs: WorkDocs
    counts: WorkCounts


class Modification:
    """The actions of one call. Their values are encoded once, however often a transaction runs."""

    def __init__(self, actions: Sequence[Action], cap_bytes: int) -> None:
        self._tasks = TaskChanges(actions, cap_bytes)
        self._docs = DocChanges(actions, cap_bytes)
        self.arrivals: tuple[tuple[str, datetime], ...] = ()
        """Queue and arrival of each task that was inserted or changed."""
        self.freed: frozenset[str] = frozenset()
        """Limited queues in which a task was claimed that is so no more."""
        self.kept: Mapping[str, int] = {}
        """Tasks that went into history, by queue."""
        self.counted = 0
        """Rows that were added to the counts."""

    @property
    def queues(self) -> frozenset[str]:
        """Queues in which there may be something to claim, now or later."""
        return self.freed.union(queue for queue, _ in self.arrivals)

    @property
    def is_lone_delete(self) -> bool:
        """Whether it deletes one task, and that is all."""
        return self._tasks.lone_delete is not None and not self._docs.any

    def end(
        self, connection: Connection, statements: Statements, moment: Moment
    ) -> Modified | None:
        """Do a lone delete by one statement, for databases that have such.

        None if nothing was written: `run` does it, or says what is at fault.
        """
        tasks = self._tasks.end(connection, statements.tasks, moment)
        if tasks is None:
            return None
        self.kept, self.freed = tasks.kept, frozenset(tasks.freed)
        self.counted = len(list(tasks.counts()))
        return Modified()

    def run(
        self,
        connection: Connection,
        statements: Statements,
        moment: Moment,
        caller: Caller | None = None,
    ) -> Modified:
        """Do it in the transaction of `connection`. Raises DependencyError.

        In a `caller`'s transaction it is a part, which is undone alone.
        """
        look = None if caller is None else caller.look
        with nullcontext() if caller is None else caller.part(connection):
            faults = self._tasks.examine(connection, statements.tasks, moment, look)
            if self._docs.any:
                faults |= self._docs.examine(connection, statements.docs, moment, look)
            _refuse(faults)
            return self._write(connection, statements, moment)

    def _write(self, connection: Connection, statements: Statements, moment: Moment) -> Modified:
        tasks = self._tasks.write(connection, statements.tasks, statements.history, moment)
        docs = (
            self._docs.write(connection, statements.docs, moment)
            if self._docs.any
            else WrittenDocs()
        )
        _refuse(tasks.faults | docs.faults)
        counts = statements.counts
        of_queues, of_namespaces = list(tasks.counts()), list(docs.counts())
        counts.add(connection, counts.queues, of_queues)
        counts.add(connection, counts.namespaces, of_namespaces)
        self.kept = tasks.kept
        self.freed = frozenset(tasks.freed)
        self.counted = len(of_queues) + len(of_namespaces)
        here = (*tasks.inserted.values(), *tasks.changed.values())
        self.arrivals = tuple((task.queue, task.at) for task in here)
        return Modified(
            inserted=_ordered(tasks.inserted),
            changed=_ordered(tasks.changed),
            inserted_docs=_ordered(docs.inserted),
            changed_docs=_ordered(docs.changed),
            changed_sets=_ordered(docs.sets),
            existing=_ordered(tasks.existing),
        )


def _refuse(faults: Mapping[int, Fault]) -> None:
    if faults:
        raise refusal("the modification", _ordered(faults))


def _ordered(by_place: Mapping[int, T]) -> tuple[T, ...]:
    return tuple([by_place[place] for place in sorted(by_place)]) if by_place else ()
