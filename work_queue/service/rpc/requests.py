"""Requests of callers, as what the work queue takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from work_queue.modification import Action, Delete, Depend
from work_queue.refs import TaskRef
from work_queue.requests import DocQuery, NameQuery, TaskQuery
from work_queue.service.marked import unmarked
from work_queue.service.protocol import DocData, DocName, Mode, Rules, TaskData, named
from work_queue.service.rpc.generations import Generation
from work_queue.service.rpc.values import read_value


def is_dated(request: Any) -> bool:
    """Whether a `ModifyRequest` names dates, which are read by the database's clock."""
    return any(
        data.at_ms > 0
        for part in ("inserts", "changes", "doc_inserts", "doc_changes")
        for item in getattr(request, part, ())
        for data in (getattr(item, "new_data", item),)
    )


def actions(request: Any, generation: Generation, rules: Rules) -> list[Action]:
    """What a `ModifyRequest` does. Raises InvalidRequestError."""
    found = list(_task_actions(request, generation, rules))
    if generation.has_docs:
        found.extend(_doc_actions(request, rules))
    return found


def _task_actions(request: Any, generation: Generation, rules: Rules) -> Iterator[Action]:
    def ref_of(ref: Any) -> TaskRef:
        return named(TaskRef(generation.name(ref.id), ref.version, ref.queue))

    def data_of(data: Any) -> TaskData:
        return TaskData(
            queue=data.queue,
            at_ms=data.at_ms,
            value=generation.read_value(data),
            id=generation.name(data.id),
            attempt=data.attempt,
            err=data.err,
        )

    for data in request.inserts:
        yield rules.insert(data_of(data))
    for change in request.changes:
        yield rules.change(
            ref_of(change.old_id) if change.HasField("old_id") else None,
            data_of(change.new_data) if change.HasField("new_data") else None,
            Mode.CHANGE_DEFAULT,
        )
    yield from (Delete(ref_of(ref)) for ref in request.deletes)
    yield from (Depend(ref_of(ref)) for ref in request.depends)


def _doc_actions(request: Any, rules: Rules) -> Iterator[Action]:
    for data in request.doc_inserts:
        yield rules.insert_doc(_doc_data(data))
    for change in request.doc_changes:
        yield rules.change_doc(
            _doc_name(change.old_id) if change.HasField("old_id") else None,
            _doc_data(change.new_data) if change.HasField("new_data") else None,
            Mode.CHANGE_DEFAULT,
        )
    for ref in request.doc_deletes:
        yield rules.delete_doc(_doc_name(ref))
    for ref in request.doc_depends:
        yield rules.depend_doc(_doc_name(ref))


def _doc_data(data: Any) -> DocData:
    return DocData(
        namespace=data.namespace,
        id=data.id,
        key=data.key,
        secondary_key=data.secondary_key,
        content=unmarked(read_value(data.content)),
        at_ms=data.at_ms,
    )


def _doc_name(ref: Any) -> DocName:
    return DocName(namespace=ref.namespace, id=ref.id, version=ref.version)


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
