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
        changed: Tasks after their change or lease change.
        inserted_docs: New docs.
        changed_docs: Docs after their change.
        changed_sets: Doc sets after their lease change, without docs.
    """

    inserted: tuple[Task, ...] = ()
    changed: tuple[Task, ...] = ()
    inserted_docs: tuple[Doc, ...] = ()
    changed_docs: tuple[Doc, ...] = ()
    changed_sets: tuple[DocSet, ...] = ()
