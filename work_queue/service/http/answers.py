"""Answers: camel case, dates and durations in milliseconds as texts, no field left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from work_queue.counts import NamespaceStats, WorkStats
from work_queue.document import Doc, DocSet
from work_queue.modification import Action, ChangeDoc, RenewSet
from work_queue.modified import Modified
from work_queue.service.marked import marked
from work_queue.service.protocol import ms_of
from work_queue.task import Task

Json = dict[str, Any]


class JsonAnswer(Response):
    """An answer in JSON, in which integers keep all their digits."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """See `Response`."""
        return msgspec.json.encode(content)


def task(one: Task) -> Json:
    """A task."""
    return {
        "queue": one.queue,
        "id": one.id,
        "version": one.version,
        "atMs": str(ms_of(one.at)),
        "claimantId": one.claimant,
        "value": marked(one.value),
        "createdMs": str(ms_of(one.created)),
        "modifiedMs": str(ms_of(one.modified)),
        "claims": one.claims,
        "attempt": one.attempt,
        "err": one.err,
    }


def doc(one: Doc) -> Json:
    """A doc."""
    return {
        "namespace": one.namespace,
        "id": one.id,
        "version": one.version,
        "claimant": one.claimant,
        "atMs": str(ms_of(one.at)),
        "key": one.key,
        "secondaryKey": one.secondary_key,
        "content": marked(one.content),
        "createdMs": str(ms_of(one.created)),
        "modifiedMs": str(ms_of(one.modified)),
    }


def doc_set(one: DocSet) -> Json:
    """A doc set: a doc without an id, and without dates of its own."""
    return {
        "namespace": one.namespace,
        "id": "",
        "version": one.version,
        "claimant": one.claimant,
        "atMs": str(ms_of(one.at)),
        "key": one.key,
        "secondaryKey": "",
        "content": None,
    }


def modified(result: Modified, actions: Iterable[Action]) -> Json:
    """What a modification has written, each list in the order of its actions."""
    docs, sets = iter(result.changed_docs), iter(result.changed_sets)
    changed = list[Json]()
    for action in actions:
        if isinstance(action, ChangeDoc):
            changed.append(doc(next(docs)))
        elif isinstance(action, RenewSet):
            changed.append(doc_set(next(sets)))
    return {
        "inserted": [task(one) for one in result.inserted],
        "changed": [task(one) for one in result.changed],
        "insertedDocs": [doc(one) for one in result.inserted_docs],
        "changedDocs": changed,
    }


def claimed_docs(sets: Sequence[DocSet]) -> Json:
    """Claimed doc sets, and all of their docs."""
    return {
        "docs": [doc(one) for claimed in sets for one in claimed.docs],
        "sets": [doc_set(one) for one in sets],
    }


def queue(stats: WorkStats) -> Json:
    """What a queue has."""
    return {
        "name": stats.queue,
        "numTasks": stats.tasks,
        "numClaimed": stats.claimed,
        "numAvailable": stats.available,
        "numFuture": stats.future,
        "maxClaims": stats.max_claims,
    }


def namespace(stats: NamespaceStats) -> Json:
    """What a namespace has."""
    return {"name": stats.namespace, "numDocs": stats.docs, "numClaimed": stats.claimed}
