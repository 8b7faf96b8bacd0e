"""The names of single versions of tasks, docs and doc sets, and places in the order of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class TaskRef:
    """One version of a task. A modification names tasks so.

    Attributes:
        id: The task's id.
        version: Its version.
        queue: The queue in which it has to be. Empty: whichever it is in.
    """

    id: str
    version: int
    queue: str = ""


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """A place in the order in which a queue's tasks are read: by arrival, then by id.

    Attributes:
        at: The arrival of the task that has this place.
        id: Its id.
    """

    at: datetime
    id: str


@dataclass(frozen=True, slots=True)
class DocRef:
    """One version of a doc.

    Attributes:
        namespace: Its namespace.
        id: Its id, unique in the namespace.
        version: The version of its set. 0 also means the one that the same modification names for
            the set.
    """

    namespace: str
    id: str
    version: int


@dataclass(frozen=True, slots=True)
class SetRef:
    """One version of a doc set.

    Attributes:
        namespace: Its namespace.
        key: Its key.
        version: Its version.
    """

    namespace: str
    key: str
    version: int


Ref = TaskRef | DocRef | SetRef
