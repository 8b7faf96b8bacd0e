"""The actions of a modification: each is possible, and no two have the same subject."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeAlias, assert_never

from queue_core.errors import InvalidRequestError
from queue_core.model.priority import HEAD_STARTS, NORMAL
from work_queue.checks import arguments as check
from work_queue.modification import (
    Action,
    Change,
    ChangeDoc,
    Delete,
    DeleteDoc,
    Depend,
    DependDoc,
    DependSet,
    Insert,
    InsertDoc,
    Renew,
    RenewSet,
    Replay,
)
from work_queue.refs import DocRef, SetRef, TaskRef

_Subject: TypeAlias = tuple[str, ...]
"""A kind of subject, and the names of one."""
CHECKS = Delete | Depend | DeleteDoc | DependDoc | DependSet
"""Actions after which nobody holds anything."""
KINDS = (
    *(Insert, Change, Delete, Depend, Renew, Replay),
    *(InsertDoc, ChangeDoc, DeleteDoc, DependDoc, DependSet, RenewSet),
)


def actions(given: Iterable[Any]) -> tuple[Action, ...]:
    """The actions of a modification. Raises InvalidRequestError."""
    found = tuple(given)
    if not found:
        raise InvalidRequestError(
            "a modification without actions. Give one at least.", key="actions"
        )
    named = set[_Subject]()
    for action in found:
        if not isinstance(action, KINDS):
            raise check.not_allowed("actions", action, _allowed(action))
        for subject in _subjects(action):
            if subject in named:
                raise InvalidRequestError(
                    f"two actions are about the {_told(subject)}. Nothing was written. Name each "
                    "task, doc, doc set and place once.",
                    key="actions",
                )
            named.add(subject)
    return tuple(_with_head_start(one) if isinstance(one, Insert) else one for one in found)


def _allowed(action: object) -> str:
    allowed = "actions, such as Insert(…) and task.delete()"
    is_list = isinstance(action, Iterable) and not isinstance(action, str | bytes)
    return f"{allowed}, each as an argument of its own: modify(*actions)" if is_list else allowed


def _told(subject: tuple[str, ...]) -> str:
    """What an action is about, such as `task 'a'`, or `place 'n', 'k', ''`."""
    kind, *names = subject
    return f"{kind} {', '.join(map(repr, names))}"


def modifier(claimant: object, default: str, given: tuple[Action, ...]) -> str:
    """Who modifies: a name that can be stored if it may be."""
    if claimant is not None and all(isinstance(action, CHECKS) for action in given):
        return check.text(claimant, key="claimant")
    return check.claimant(claimant, default)


def _subjects(action: Action) -> list[_Subject]:
    """What an action is about, once it was checked."""
    match action:
        case Insert():
            return _insert(action)
        case Change():
            if action.queue is not None:
                check.queue(action.queue)
            _content(action)
            return [_task(action.task)]
        case Renew():
            check.seconds(action.seconds, key="seconds")
            return [_task(action.task)]
        case Replay():
            check.queue(action.queue)
            return [_task(action.task)]
        case Delete() | Depend():
            return [_task(action.task)]
        case InsertDoc():
            return _insert_doc(action)
        case ChangeDoc():
            check.seconds(action.delay, key="delay")
            return [_doc(action.doc)]
        case DeleteDoc() | DependDoc():
            return [_doc(action.doc)]
        case RenewSet():
            check.seconds(action.seconds, key="seconds")
            return [_set(action.docs)]
        case DependSet():
            return [_set(action.docs)]
        case _:
            assert_never(action)


def _insert(action: Insert) -> list[_Subject]:
    check.queue(action.queue)
    _content(action)
    priority: object = action.priority
    if not isinstance(priority, str) or priority not in HEAD_STARTS:
        raise check.not_allowed("priority", action.priority, ", ".join(HEAD_STARTS))
    if action.id is None:
        if action.skip_existing:
            raise InvalidRequestError("skip_existing needs an id.", key="skip_existing")
        return []
    return [("task", check.task_id(action.id))]


def _with_head_start(action: Insert) -> Insert:
    """A priority as the delay that it is: backends and wires know no other."""
    if action.priority == NORMAL:
        return action
    if action.at is not None or action.delay is not None:
        raise InvalidRequestError(
            f"priority={action.priority!r} can't be combined with at=… or delay=…: its head start "
            "could let the task run before its time. Nothing was written. Give the priority or "
            "the date.",
            key="priority",
            value=action.priority,
        )
    return replace(action, delay=-HEAD_STARTS[action.priority], priority=NORMAL)


def _content(action: Insert | Change) -> None:
    check.check_arrival(action.at, action.delay)
    check.count(action.attempt, key="attempt")
    check.text(action.err, key="err")


def _insert_doc(action: InsertDoc) -> list[_Subject]:
    namespace, key = check.namespace(action.namespace), check.doc_key(action.key)
    secondary = check.doc_key(action.secondary_key, key="secondary_key", least=0)
    check.seconds(action.delay, key="delay")
    place: list[_Subject] = [("place", namespace, key, secondary)]
    if action.id is None:
        return place
    return [*place, ("doc", namespace, check.task_id(action.id))]


def _task(ref: object) -> _Subject:
    if not isinstance(ref, TaskRef):
        raise check.not_allowed("task", ref, "a TaskRef, such as task.ref")
    check.task_id(ref.id)
    check.count(ref.version, key="version")
    check.text(ref.queue, key="queue")
    return "task", ref.id


def _doc(ref: object) -> _Subject:
    if not isinstance(ref, DocRef):
        raise check.not_allowed("doc", ref, "a DocRef, such as doc.ref")
    check.namespace(ref.namespace)
    check.task_id(ref.id)
    check.count(ref.version, key="version")
    return "doc", ref.namespace, ref.id


def _set(ref: object) -> _Subject:
    if not isinstance(ref, SetRef):
        raise check.not_allowed("docs", ref, "a SetRef, such as doc_set.ref")
    check.namespace(ref.namespace)
    check.doc_key(ref.key)
    check.count(ref.version, key="version")
    return "doc set", ref.namespace, ref.key
