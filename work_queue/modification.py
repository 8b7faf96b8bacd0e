"""The actions of one call of `modify`. All of them are plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypedDict

from queue_core.model.priority import NORMAL, Priority
from work_queue.refs import DocRef, SetRef, TaskRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """A new task.

    Attributes:
        queue: Its queue; 1 to 512 characters.
        value: A JSON value, or bytes. Integers keep all their digits.
        delay: Seconds, or a timedelta, until it can be claimed. Default: at once. A negative one
            puts it before tasks that are ready by now.
        at: When it can be claimed, as an aware date; instead of `delay`.
        id: Its id, at most 64 bytes; a task with this id is a fault. Default: a new one.
        attempt: See `Task`.
        err: See `Task`.
        priority: "high" puts it ahead of tasks that became ready in the ten minutes before,
            "urgent" in the hour before; only for a task that is ready at once. It is a head start
            for the first claim: a retry has none. Default: "normal".
        skip_existing: Whether it is left out, instead of a fault, if a task with its id exists.
            Default: False.
    """

    queue: str
    value: Any = None
    delay: timedelta | float | None = None
    at: datetime | None = None
    id: str | None = None
    attempt: int = 0
    err: str = ""
    skip_existing: bool = False
    priority: Priority = NORMAL


class InsertOptions(TypedDict, total=False):
    """The options of `Insert`, but for queue and value."""

    delay: timedelta | float | None
    at: datetime | None
    id: str | None
    attempt: int
    err: str
    skip_existing: bool
    priority: Priority


@dataclass(frozen=True, slots=True)
class Change:
    """A task's new content. All of it is written.

    Attributes:
        task: The version that is changed.
        queue: The queue that the task moves to. Default: it stays.
        value: A JSON value, or bytes. With `UNREAD` the stored value stays, and is neither read nor
            sent.
        delay: Seconds, or a timedelta, until it can be claimed; whoever changes it holds it until
            then. Default: it is ready at once, and held by nobody.
        at: The same as an aware date, instead of `delay`.
        attempt: See `Task`.
        err: See `Task`.
        reset_claims: Whether `Task.claims` starts at 0 again. Default: False.
    """

    task: TaskRef
    queue: str | None = None
    value: Any = None
    delay: timedelta | float | None = None
    at: datetime | None = None
    attempt: int = 0
    err: str = ""
    reset_claims: bool = False


class Changes(TypedDict, total=False):
    """The options of `Change`, of which `Task.change` takes some."""

    queue: str | None
    value: Any
    delay: timedelta | float | None
    at: datetime | None
    attempt: int
    err: str
    reset_claims: bool


@dataclass(frozen=True, slots=True)
class Delete:
    """The end of a task.

    Attributes:
        task: The version that is deleted.
    """

    task: TaskRef


@dataclass(frozen=True, slots=True)
class Depend:
    """A condition: this version of a task is the newest.

    Attributes:
        task: The version.
    """

    task: TaskRef


@dataclass(frozen=True, slots=True)
class Renew:
    """A task's new arrival, and nothing else.

    Attributes:
        task: The version whose arrival moves.
        seconds: The lease from now; 0 or less: the task is released.
        undo_claim: Whether the claim counts no more: its run has not ended, and the task is not to
            blame. Default: False.
        with_value: Whether the answer has the task's value. False: it is neither read nor sent.
            Default: True.
    """

    task: TaskRef
    seconds: float
    undo_claim: bool = False
    with_value: bool = True


@dataclass(frozen=True, slots=True)
class Replay:
    """A task's new beginning in a queue: ready at once, without attempts, claims and `err`.

    Its value stays, and is neither read nor sent.

    Attributes:
        task: The version that begins anew.
        queue: The queue that it goes to.
    """

    task: TaskRef
    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertDoc:
    """A new doc.

    Attributes:
        namespace: Its namespace; 1 to 1,024 bytes.
        key: The key of its set; 1 to 256 bytes.
        secondary_key: Its key inside the set, unique there; at most 256 bytes.
        content: A JSON value, or bytes.
        id: Its id, at most 64 bytes. Default: a new one.
        delay: Seconds for which the set is held from now on. Default: it is held by nobody.
    """

    namespace: str
    key: str
    secondary_key: str = ""
    content: Any = None
    id: str | None = None
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class ChangeDoc:
    """A doc's new content. Its keys stay.

    Attributes:
        doc: The version that is changed.
        content: A JSON value, or bytes.
        delay: Seconds for which the set is held from now on. Default: it is released.
    """

    doc: DocRef
    content: Any = None
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class DeleteDoc:
    """The end of a doc.

    Attributes:
        doc: The version that is deleted.
    """

    doc: DocRef


@dataclass(frozen=True, slots=True)
class DependDoc:
    """A condition: this version of a doc is the newest.

    Attributes:
        doc: The version.
    """

    doc: DocRef


@dataclass(frozen=True, slots=True)
class DependSet:
    """A condition: this version of a doc set is the newest.

    Attributes:
        docs: The version.
    """

    docs: SetRef


@dataclass(frozen=True, slots=True)
class RenewSet:
    """A doc set's new arrival, and nothing else.

    Attributes:
        docs: The version whose arrival moves.
        seconds: The lease from now; 0 or less: the set is released.
    """

    docs: SetRef
    seconds: float


NamesTask: TypeAlias = Change | Delete | Depend | Renew | Replay
"""What is done with a task that is there."""
TaskAction: TypeAlias = Insert | NamesTask
DocAction: TypeAlias = InsertDoc | ChangeDoc | DeleteDoc | DependDoc | DependSet | RenewSet
Action: TypeAlias = TaskAction | DocAction
"""Whatever `WorkQueue.modify` does."""
