"""The answers of the work queue, as messages."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from work_queue.counts import NamespaceStats, WorkStats
from work_queue.document import Doc
from work_queue.modified import Modified
from work_queue.service.marked import marked
from work_queue.service.protocol import ms_of
from work_queue.service.rpc.descriptors import API
from work_queue.service.rpc.generations import Generation
from work_queue.service.rpc.values import write_value
from work_queue.task import Task
from work_queue.values import UNREAD


def claimed(tasks: list[Task], generation: Generation) -> Any:
    """A `ClaimResponse`, without a task if there is none."""
    answer = generation.package["ClaimResponse"]()
    if tasks:
        _write_task(tasks[0], generation, answer.task)
    return answer


def tasks(found: Iterable[Task], generation: Generation) -> Any:
    """A `TasksResponse`."""
    answer = generation.package["TasksResponse"]()
    for task in found:
        _write_task(task, generation, answer.tasks.add())
    return answer


def modified(given: Modified, generation: Generation) -> Any:
    """A `ModifyResponse`."""
    answer = generation.package["ModifyResponse"]()
    for task in given.inserted:
        _write_task(task, generation, answer.inserted.add())
    for task in given.changed:
        _write_task(task, generation, answer.changed.add())
    for doc in given.inserted_docs:
        _write_doc(doc, answer.inserted_docs.add())
    for doc in given.changed_docs:
        _write_doc(doc, answer.changed_docs.add())
    return answer


def docs(found: Iterable[Doc], message: str) -> Any:
    """A `DocsResponse` or `ClaimDocsResponse`."""
    answer = API[message]()
    for doc in found:
        _write_doc(doc, answer.docs.add())
    return answer


def queues(found: Iterable[WorkStats], generation: Generation) -> Any:
    """A `QueuesResponse`."""
    answer = generation.package["QueuesResponse"]()
    for stats in found:
        numbers = answer.queues.add(
            name=stats.queue,
            num_tasks=stats.tasks,
            num_claimed=stats.claimed,
            num_available=stats.available,
            max_claims=stats.max_claims,
        )
        if generation.has_docs:
            numbers.num_future = stats.future
    return answer


def namespaces(found: Iterable[NamespaceStats]) -> Any:
    """A `NamespacesResponse`."""
    answer = API["NamespacesResponse"]()
    for stats in found:
        answer.namespaces.add(name=stats.namespace, num_docs=stats.docs, num_claimed=stats.claimed)
    return answer


def time(now: datetime, generation: Generation) -> Any:
    """A `TimeResponse`."""
    return generation.package["TimeResponse"](time_ms=ms_of(now))


def _write_task(task: Task, generation: Generation, message: Any) -> None:
    message.queue = task.queue
    message.id = task.id
    message.version = task.version
    message.at_ms = ms_of(task.at)
    message.claimant_id = generation.claimant(task.claimant)
    message.created_ms = ms_of(task.created)
    message.modified_ms = ms_of(task.modified)
    message.claims = task.claims
    message.attempt = task.attempt
    message.err = task.err
    if task.value is not UNREAD:
        generation.write_value(task.value, message)


def _write_doc(doc: Doc, message: Any) -> None:
    message.namespace = doc.namespace
    message.id = doc.id
    message.version = doc.version
    message.claimant = doc.claimant
    message.at_ms = ms_of(doc.at)
    message.key = doc.key
    message.secondary_key = doc.secondary_key
    message.created_ms = ms_of(doc.created)
    message.modified_ms = ms_of(doc.modified)
    if doc.content is not UNREAD:
        write_value(marked(doc.content), message.content)
