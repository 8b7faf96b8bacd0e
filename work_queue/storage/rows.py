"""Tasks and docs as rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queue_core.errors import PayloadNotDecodableError
from work_queue.document import Doc, DocSet
from work_queue.finished_task import FinishedTask
from work_queue.task import Task
from work_queue.values import UNREAD, decode


def task_of(row: Any, *, has_value: bool = True) -> Task:
    """The task of a row with all columns. `has_value`: the value's were read."""
    return Task(
        id=row.task_id,
        version=row.version,
        queue=row.queue,
        at=row.arrival_date,
        claimant=row.claimant,
        claims=row.claims,
        value=_read(row.value_json, row.value_bytes) if has_value else UNREAD,
        created=row.created_date,
        modified=row.modified_date,
        attempt=row.attempt,
        err=row.err or "",
        failed_in=row.failed_in or "",
    )


def task_of_values(row: Sequence[Any]) -> Task:
    """The same of a driver's row, whose columns are in the order of the table."""
    task_id, queue, version, at, _, claimant, claims, attempt, created, modified, *rest = row
    err, text, data, failed_in = rest
    return Task(
        task_id,
        version,
        queue,
        at,
        claimant,
        claims,
        _read(text, data),
        created,
        modified,
        attempt,
        err or "",
        failed_in or "",
    )


def finished_of(row: Any, *, has_value: bool) -> FinishedTask:
    """The task of a row of history. `has_value`: the value's columns were read."""
    return FinishedTask(
        id=row.task_id,
        version=row.version,
        queue=row.queue,
        claims=row.claims,
        value=_read(row.value_json, row.value_bytes) if has_value else UNREAD,
        created=row.created_date,
        modified=row.modified_date,
        finished=row.finished_date,
        finished_by=row.finished_by,
        attempt=row.attempt,
        err=row.err or "",
    )


def doc_of(row: Any, *, has_content: bool = True) -> Doc:
    """The doc of a row with all columns, and those of its set.

    `has_content`: the content's were read.
    """
    return Doc(
        namespace=row.namespace,
        id=row.doc_id,
        version=row.version,
        claimant=row.claimant,
        at=row.arrival_date,
        key=row.doc_key,
        secondary_key=row.secondary_key,
        content=_read(row.content_json, row.content_bytes) if has_content else UNREAD,
        created=row.created_date,
        modified=row.modified_date,
    )


def set_of(row: Any, docs: Sequence[Doc] = ()) -> DocSet:
    """The set of a row."""
    return DocSet(
        row.namespace, row.doc_key, row.version, row.claimant, row.arrival_date, tuple(docs)
    )


def _read(text: str | None, data: bytes | None) -> Any:
    """What two columns hold, or UNREAD if somebody else has spoilt it.

    An error would fail all that is read with it, and leave the leases of a claim that is committed.
    """
    try:
        return decode(text, data)
    except PayloadNotDecodableError:
        return UNREAD
