"""Requests of callers, as what the work queue takes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from queue_core.errors import InvalidRequestError
from work_queue.modification import (
    Action,
    Change,
    ChangeDoc,
    Delete,
    DeleteDoc,
    Depend,
    DependDoc,
    Insert,
    InsertDoc,
)
from work_queue.refs import DocRef, TaskRef
from work_queue.requests import DocQuery, NameQuery, TaskQuery
from work_queue.service.rpc.generations import Generation
from work_queue.service.rpc.values import read_value

YEAR = timedelta(days=365)
LEASE_SECONDS = 30.0
"""The lease of a claim that gives none, in the first protocol."""


def lease_seconds(duration_ms: int) -> float:
    """The lease of a claim; a negative one is not allowed, as everywhere."""
    return duration_ms / 1000 or LEASE_SECONDS


def arrival(at_ms: int, now: datetime) -> datetime | None:
    """When a task can be claimed; None: at once.

    Callers say so by leaving it out, and some of them by a date that is long past.
    """
    if at_ms <= 0:
        return None
    try:
        at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)
    except OverflowError:
        raise InvalidRequestError(
            f"at_ms={at_ms} is no date. Nothing was written.", key="at", value=at_ms
        ) from None
    return at if at > now - YEAR else None


def actions(request: Any, generation: Generation, now: datetime) -> list[Action]:
    """What a `ModifyRequest` does. Raises InvalidRequestError."""
    found = list(_task_actions(request, generation, now))
    if "doc_inserts" in type(request).DESCRIPTOR.fields_by_name:
        found.extend(_doc_actions(request, now))
    return found


def has_doc_arrivals(request: Any) -> bool:
    """Whether docs are to be held until a date."""
    return any(data.at_ms > 0 for data in getattr(request, "doc_inserts", ())) or any(
        change.new_data.at_ms > 0 for change in getattr(request, "doc_changes", ())
    )


def _task_actions(request: Any, generation: Generation, now: datetime) -> Iterator[Action]:
    for data in request.inserts:
        yield Insert(
            queue=data.queue,
            value=generation.read_value(data),
            at=arrival(data.at_ms, now),
            id=generation.name(data.id) or None,
            attempt=data.attempt,
            err=data.err,
        )
    for change in request.changes:
        _check_complete(change)
        data = change.new_data
        yield Change(
            _task_ref(change.old_id, generation),
            queue=data.queue or None,
            value=generation.read_value(data),
            at=arrival(data.at_ms, now),
            attempt=data.attempt,
            err=data.err,
        )
    for ref in request.deletes:
        yield Delete(_task_ref(ref, generation))
    for ref in request.depends:
        yield Depend(_task_ref(ref, generation))


def _doc_actions(request: Any, now: datetime) -> Iterator[Action]:
    for data in request.doc_inserts:
        yield InsertDoc(
            namespace=data.namespace,
            key=data.key,
            secondary_key=data.secondary_key,
            content=read_value(data.content),
            id=data.id or None,
            delay=_delay(data.at_ms, now),
        )
    for change in request.doc_changes:
        _check_complete(change)
        ref, data = change.old_id, change.new_data
        if data.namespace not in {"", ref.namespace}:
            raise InvalidRequestError(
                f"a doc of {ref.namespace!r} can't move to {data.namespace!r}. Nothing was "
                "written. Insert it there, and delete it here.",
                key="namespace",
                value=data.namespace,
            )
        yield ChangeDoc(_doc_ref(ref), read_value(data.content), delay=_delay(data.at_ms, now))
    for ref in request.doc_deletes:
        yield DeleteDoc(_doc_ref(ref))
    for ref in request.doc_depends:
        yield DependDoc(_doc_ref(ref))


def _delay(at_ms: int, now: datetime) -> float:
    at = arrival(at_ms, now)
    return 0.0 if at is None else max(0.0, (at - now).total_seconds())


def _check_complete(change: Any) -> None:
    for part in ("old_id", "new_data"):
        if not change.HasField(part):
            raise InvalidRequestError(f"a change without {part}. Nothing was written.", key=part)


def _task_ref(ref: Any, generation: Generation) -> TaskRef:
    return TaskRef(generation.name(ref.id), ref.version, getattr(ref, "queue", ""))


def _doc_ref(ref: Any) -> DocRef:
    return DocRef(ref.namespace, ref.id, ref.version)


def task_query(request: Any, generation: Generation) -> TaskQuery:
    """What a `TasksRequest` reads. Raises InvalidRequestError."""
    return TaskQuery(
        queue=request.queue or None,
        ids=tuple(generation.name(text) for text in request.task_id) or None,
        claimant=generation.name(request.claimant_id) or None,
        limit=request.limit,
        with_values=not request.omit_values,
    )


def doc_query(query: Any) -> DocQuery:
    """What a `DocQuery` reads."""
    return DocQuery(
        namespace=query.namespace,
        ids=tuple(query.ids) or None,
        first_key=query.key_start,
        end_key=query.key_end,
        limit=query.limit,
        with_contents=not query.omit_values,
    )


def name_query(request: Any) -> NameQuery:
    """Of which names a `QueuesRequest` or `NamespacesRequest` asks for numbers."""
    return NameQuery(tuple(request.match_prefix), tuple(request.match_exact), request.limit)
