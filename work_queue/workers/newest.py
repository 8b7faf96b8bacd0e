"""A handler's actions, at the newest versions of what its worker holds.

A handler knows the versions that were claimed; renewals have raised them since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from work_queue.document import DocSet
from work_queue.modification import (
    Action,
    Change,
    ChangeDoc,
    Delete,
    DeleteDoc,
    Depend,
    DependDoc,
    DependSet,
    InsertDoc,
    NamesTask,
    Renew,
    RenewSet,
    Replay,
)
from work_queue.refs import DocRef
from work_queue.task import Task
from work_queue.values import UNREAD

Place = tuple[str, str]
"""A namespace, and a key or an id in it."""


def counted_anew(actions: Iterable[Action], task: Task, others: Mapping[str, Task]) -> list[Action]:
    """The actions, after which the claims of tasks that stay start at 0: a run has ended.

    A renewal that undoes its claim says that it has not, and stays as it is. A dependency on the
    run's own task leaves that to its claimant until the lease ends.

    Args:
        actions: What the handler has returned.
        task: Its task by now.
        others: By id, what else it holds by now.
    """
    tasks = {**others, task.id: task}
    found = list[Action]()
    for action in actions:
        match action:
            case Change() if action.task.id in tasks:
                found.append(replace(action, reset_claims=True))
            case Renew(undo_claim=False) if action.task.id in tasks:
                found.append(_left_as(tasks[action.task.id], delay=action.seconds))
            case Depend() if action.task.id == task.id:
                found.append(_left_as(task, at=task.at))
            case _:
                found.append(action)
    return found


def _left_as(task: Task, *, delay: float | None = None, at: datetime | None = None) -> Change:
    """The change of a task's arrival and claims, and of nothing else."""
    kept = replace(task, value=UNREAD)
    return kept.change(delay=delay, at=at, reset_claims=True)


def newest(
    actions: Iterable[Action],
    task: Task,
    others: Mapping[str, Task],
    sets: Iterable[DocSet],
    set_keys: Mapping[Place, str],
) -> list[Action]:
    """The actions at the newest versions, and what they leave open.

    The task is deleted, and other tasks and the doc sets are released, unless an action says
    otherwise. The claims of other tasks that are released count no more: the task stands for them.
    A dependency is left out if what it names is released: that has the same condition.

    Args:
        actions: What the handler has returned.
        task: Its task by now.
        others: By id, what else it holds by now.
        sets: Its doc sets by now.
        set_keys: The keys of the sets of the docs that it was given, by namespace and id.
    """
    versions = {(docs.namespace, docs.key): docs.version for docs in sets}
    tasks = {task.id: task, **others}
    given = [_at_newest(action, tasks, versions, set_keys) for action in actions]
    left_tasks, left = dict(tasks), dict.fromkeys(versions)
    for action in given:
        match action:
            case Depend() if action.task.id in others:
                continue
            case Change() | Delete() | Depend() | Renew() | Replay():
                left_tasks.pop(action.task.id, None)
            case ChangeDoc() | DeleteDoc():
                left.pop(_set_of(action.doc, set_keys), None)
            case RenewSet():
                left.pop((action.docs.namespace, action.docs.key), None)
            case InsertDoc():
                left.pop((action.namespace, action.key), None)
    found = [action for action in given if not _is_implied(action, left_tasks, left)]
    if left_tasks.pop(task.id, None):
        found.append(task.delete())
    found += [
        Renew(other.ref, 0.0, undo_claim=True, with_value=False) for other in left_tasks.values()
    ]
    return [*found, *(docs.release() for docs in sets if (docs.namespace, docs.key) in left)]


def _at_newest(
    action: Action,
    tasks: Mapping[str, Task],
    versions: Mapping[Place, int],
    set_keys: Mapping[Place, str],
) -> Action:
    match action:
        case Change() | Delete() | Depend() | Renew() | Replay() if action.task.id in tasks:
            return _of_task(action, tasks[action.task.id].version)
        case ChangeDoc() | DeleteDoc() | DependDoc():
            place = _set_of(action.doc, set_keys)
            if place in versions:
                return replace(action, doc=replace(action.doc, version=versions[place]))
        case DependSet() | RenewSet():
            place = action.docs.namespace, action.docs.key
            if place in versions:
                return replace(action, docs=replace(action.docs, version=versions[place]))
    return action


def _set_of(doc: DocRef, set_keys: Mapping[Place, str]) -> Place:
    return doc.namespace, set_keys.get((doc.namespace, doc.id), "")


def _is_implied(action: Action, left_tasks: Mapping[str, Task], left: Mapping[Place, None]) -> bool:
    """Whether it is a dependency on what is released: a modification names each once."""
    match action:
        case Depend():
            return action.task.id in left_tasks
        case DependSet():
            return (action.docs.namespace, action.docs.key) in left
    return False


def _of_task(action: NamesTask, version: int) -> Action:
    return replace(action, task=replace(action.task, version=version))
