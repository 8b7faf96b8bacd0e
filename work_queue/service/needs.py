"""Which rights each call needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from work_queue.document import DocClaim
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
from work_queue.refs import TaskRef
from work_queue.requests import NameQuery
from work_queue.rights import Kind, Need, Right


def of_claim(queues: Sequence[str], claimant: str) -> list[Need]:
    """Those of a claim of tasks."""
    return [_acts(claimant), *(_queue(Right.CLAIM, queue) for queue in dict.fromkeys(queues))]


def of_doc_claim(claims: Iterable[DocClaim], until: TaskRef | None, claimant: str) -> list[Need]:
    """Those of a claim of doc sets."""
    namespaces = dict.fromkeys(claim.namespace for claim in claims)
    needs = [_acts(claimant), *(_namespace(Right.CLAIM, name) for name in namespaces)]
    return needs if until is None else [*needs, _queue(Right.DEPEND, until.queue)]


def of_actions(actions: Iterable[Action], claimant: str) -> list[Need]:
    """Those of a modification, each once."""
    needs = [_acts(claimant)]
    for action in actions:
        needs += _of_action(action)
    return list(dict.fromkeys(needs))


def of_tasks(queues: Iterable[str]) -> list[Need]:
    """Those of a read of tasks in these queues."""
    return [_queue(Right.READ, queue) for queue in dict.fromkeys(queues)]


def of_queue(right: Right, queue: str) -> list[Need]:
    """Those of a change of what is set for a queue: its history, its limit, or a schedule's end."""
    return [_queue(right, queue)]


def of_schedule(queue: str) -> list[Need]:
    """Those of a recurring schedule, which is set for a queue, and inserts into it."""
    return [_queue(Right.CHANGE, queue), _queue(Right.INSERT, queue)]


def of_docs(namespace: str) -> list[Need]:
    """Those of a read of docs."""
    return [_namespace(Right.READ, namespace)]


def of_names(kind: Kind, query: NameQuery) -> list[Need]:
    """Those of statistics. Without names and prefixes they are about all there is."""
    prefixes = query.prefixes or (() if query.names else ("",))
    return [
        *(Need(Right.READ, kind, name) for name in query.names),
        *(Need(Right.READ, kind, prefix, prefix=True) for prefix in prefixes),
    ]


def _of_action(action: Action) -> list[Need]:
    match action:
        case Insert():
            return [_queue(Right.INSERT, action.queue)]
        case Change() | Replay():
            need = _queue(Right.CHANGE, action.task.queue)
            stays = action.queue in {None, action.task.queue}
            return [need] if stays else [need, _queue(Right.INSERT, action.queue or "")]
        case Renew():
            return [_queue(Right.CHANGE, action.task.queue)]
        case Delete():
            return [_queue(Right.DELETE, action.task.queue)]
        case Depend():
            return [_queue(Right.DEPEND, action.task.queue)]
        case InsertDoc():
            return [_namespace(Right.INSERT, action.namespace)]
        case ChangeDoc():
            return [_namespace(Right.CHANGE, action.doc.namespace)]
        case DeleteDoc():
            return [_namespace(Right.DELETE, action.doc.namespace)]
        case DependDoc():
            return [_namespace(Right.DEPEND, action.doc.namespace)]
        case DependSet():
            return [_namespace(Right.DEPEND, action.docs.namespace)]
        case RenewSet():
            return [_namespace(Right.CHANGE, action.docs.namespace)]
        case _:
            assert_never(action)


def _acts(claimant: str) -> Need:
    return Need(Right.ACT, Kind.CLAIMANT, claimant)


def _queue(right: Right, name: str) -> Need:
    return Need(right, Kind.QUEUE, name)


def _namespace(right: Right, name: str) -> Need:
    return Need(right, Kind.NAMESPACE, name)
