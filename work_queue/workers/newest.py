"""A handler's actions, at the newest versions of what its worker holds.

A handler knows the versions that were claimed; renewals have raised them since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

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
from work_queue.task import Task

Place = tuple[str, str]
"""A namespace, and a key or an id in it."""


def newest(
    actions: Iterable[Action],
    task: Task,
    others: Mapping[str, Task],
    sets: Iterable[DocSet],
    set_keys: Mapping[Place, str],
) -> list[Action]:
    """The actions at the newest versions, and what they leave open.

    The task is deleted, and other tasks and the doc sets are released, unless an action says
    otherwise.

    Args:
        actions: What the handler has returned.
        task: Its task by now.
        others: By id, what else it holds by now.
        sets: Its doc sets by now.
        set_keys: The keys of the sets of the docs that it was given, by namespace and id.
    """
    versions = {(docs.namespace, docs.key): docs.version for docs in sets}
    found, left = list[Action](), dict.fromkeys(versions)
    tasks = {task.id: task, **others}
    left_tasks = dict(tasks)
    for action in actions:
        match action:
            case Change() | Delete() | Depend() | Renew() | Replay() if action.task.id in tasks:
                left_tasks.pop(action.task.id, None)
                found.append(_of_task(action, tasks[action.task.id].version))
            case ChangeDoc() | DeleteDoc() | DependDoc():
                namespace = action.doc.namespace
                place = namespace, set_keys.get((namespace, action.doc.id), "")
                if place not in versions:
                    found.append(action)
                    continue
                found.append(replace(action, doc=replace(action.doc, version=versions[place])))
                if not isinstance(action, DependDoc):
                    left.pop(place, None)
            case DependSet() | RenewSet():
                place = action.docs.namespace, action.docs.key
                version = versions.get(place, action.docs.version)
                found.append(replace(action, docs=replace(action.docs, version=version)))
                left.pop(place, None)
            case InsertDoc():
                found.append(action)
                left.pop((action.namespace, action.key), None)
            case _:
                found.append(action)
    if left_tasks.pop(task.id, None):
        found.append(task.delete())
    found += [other.release() for other in left_tasks.values()]
    return [*found, *(docs.release() for docs in sets if (docs.namespace, docs.key) in left)]


def _of_task(action: NamesTask, version: int) -> Action:
    named = replace(action, task=replace(action.task, version=version))
    return replace(named, reset_claims=True) if isinstance(named, Change) else named
