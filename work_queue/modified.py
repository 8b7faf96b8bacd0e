"""The answer of a modification."""

from __future__ import annotations

from dataclasses import dataclass

from work_queue.document import Doc, DocSet
from work_queue.task import Task


@dataclass(frozen=True, slots=True)
class Modified:
    """What a modification has written, each list in the order of the call.

    Attributes:
        inserted: New tasks. Those that were left out are not among them.
        changed: Tasks after their change, lease change or replay; a replay does not read the value.
        inserted_docs: New docs.
        changed_docs: Docs after their change.
        changed_sets: Doc sets after their lease change, without docs.
        existing: Tasks that were there already, with the ids of inserts that were left out.
    """

    inserted: tuple[Task, ...] = ()
    changed: tuple[Task, ...] = ()
    inserted_docs: tuple[Doc, ...] = ()
    changed_docs: tuple[Doc, ...] = ()
    changed_sets: tuple[DocSet, ...] = ()
    existing: tuple[Task, ...] = ()
