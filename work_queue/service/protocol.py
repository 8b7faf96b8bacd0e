"""The meaning of requests in both protocols, whatever the wire: 2 is today's, 1 the old one.

Both name times in whole milliseconds: protocol 2 from now (`by_ms`), protocol 1 as dates (`at_ms`).
A request that makes no sense is an InvalidRequestError.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypedDict

from queue_core.errors import InvalidRequestError, StickybusError
from work_queue.checks.arguments import LONGEST_SECONDS
from work_queue.modification import (
    Change,
    ChangeDoc,
    DeleteDoc,
    DependDoc,
    DependSet,
    Insert,
    InsertDoc,
    Renew,
    RenewSet,
)
from work_queue.refs import DocRef, SetRef, TaskRef

PROTOCOLS = (1, 2)
PROTOCOL_KEY = "entroq-protocol"
"""The header, or entry of metadata, by which both sides name protocols."""
OLD_LEASE_SECONDS = 30.0
"""The lease of a claim by protocol 1 that gives none."""
OLDEST = timedelta(days=365)
"""A date of protocol 1 that is older means now: callers send zero dates so."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


class UnsupportedRequestError(StickybusError):
    """A request that the service understands, but does not serve. Nothing was written."""


class Mode(StrEnum):
    """The effect of a change on fields that it does not name."""

    CHANGE_DEFAULT = "CHANGE_DEFAULT"
    """Claims are kept."""
    CHANGE_RESET_CLAIMS = "CHANGE_RESET_CLAIMS"
    """Claims start at 0 again."""
    CHANGE_LEASE = "CHANGE_LEASE"
    """Only the arrival moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskData:
    """The fields of a task in a request; those that it leaves out are empty."""

    queue: str = ""
    by_ms: int = 0
    at_ms: int = 0
    value: Any = None
    id: str = ""
    attempt: int = 0
    err: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocName:
    """How a request names a doc, by its id, or a doc set, by its key."""

    namespace: str = ""
    id: str = ""
    key: str = ""
    secondary_key: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DocData:
    """The fields of a doc in a request; those that it leaves out are empty."""

    namespace: str = ""
    id: str = ""
    key: str = ""
    secondary_key: str = ""
    content: Any = None
    by_ms: int = 0
    at_ms: int = 0


def protocol_of(declared: str | None) -> int:
    """The protocol that a caller declares; 1 if it declares none.

    Raises UnsupportedRequestError.
    """
    if declared is None:
        return 1
    text = declared.strip()
    if text not in {str(served) for served in PROTOCOLS}:
        raise UnsupportedRequestError(
            f"protocol {text[:20]!r} is not served. Nothing was written. Served: "
            f"{', '.join(map(str, PROTOCOLS))}."
        )
    return int(text)


def mode_of(name: str) -> Mode:
    """A mode by its name; none is the default. Raises InvalidRequestError."""
    try:
        return Mode(name) if name else Mode.CHANGE_DEFAULT
    except ValueError:
        raise _refused("mode", name, ", ".join(Mode)) from None


def ms_of(date: datetime) -> int:
    """A date as both protocols tell it: whole milliseconds."""
    return (date - EPOCH) // MILLISECOND


def seconds_of(ms: int, key: str, given: int) -> float:
    """Milliseconds in seconds. An InvalidRequestError names what was `given`, by its `key`."""
    if abs(ms) > LONGEST_SECONDS * 1000:
        raise _refused(key, given, "less than a century from now")
    return ms / 1000


class _Arrival(TypedDict, total=False):
    at: datetime
    delay: float


@dataclass(frozen=True, slots=True)
class Rules:
    """What the requests of one caller mean.

    Attributes:
        protocol: Its protocol.
        now: The time of the database, by which dates of protocol 1 are read.
    """

    protocol: int
    now: datetime = EPOCH

    def lease_seconds(self, duration_ms: int) -> float | None:
        """The lease of a claim; None: the work queue's."""
        if duration_ms == 0:
            return OLD_LEASE_SECONDS if self.protocol == 1 else None
        return seconds_of(duration_ms, "durationMs", duration_ms)

    # -- tasks ------------------------------------------------------------------------------------

    def insert(self, data: TaskData) -> Insert:
        """A new task."""
        return Insert(
            queue=data.queue,
            value=data.value,
            id=data.id or None,
            attempt=data.attempt,
            err=data.err,
            **self._arrival(data),
        )

    def change(self, old: TaskRef | None, data: TaskData | None, mode: Mode) -> Change | Renew:
        """A task's new content, or its new arrival alone."""
        self._check_mode(mode)
        task = named(old)
        if data is None:
            raise _missing("a change without new data")
        if data.id not in {"", task.id}:
            raise _refused("newData.id", data.id, "none: an id stays")
        if mode is Mode.CHANGE_LEASE:
            return self._renew(task, data)
        return Change(
            task,
            queue=data.queue or None,
            value=data.value,
            attempt=data.attempt,
            err=data.err,
            reset_claims=mode is Mode.CHANGE_RESET_CLAIMS,
            **self._arrival(data),
        )

    def _renew(self, task: TaskRef, data: TaskData) -> Renew:
        if data.value is not None or data.id or data.attempt or data.err:
            raise _missing("a lease change with more than an arrival")
        if data.queue not in {"", task.queue}:
            raise _refused("newData.queue", data.queue, "the task's: a lease change moves nothing")
        return Renew(task, self._delay(data))

    # -- docs -------------------------------------------------------------------------------------

    def insert_doc(self, data: DocData) -> InsertDoc:
        """A new doc."""
        return InsertDoc(
            namespace=data.namespace,
            key=data.key,
            secondary_key=data.secondary_key,
            content=data.content,
            id=data.id or None,
            delay=self._delay(data),
        )

    def change_doc(
        self, old: DocName | None, data: DocData | None, mode: Mode
    ) -> ChangeDoc | RenewSet:
        """A doc's new content, or the new arrival of its set alone."""
        self._check_mode(mode)
        if mode is Mode.CHANGE_RESET_CLAIMS:
            raise _refused("mode", mode.value, "docs count no claims")
        if old is None or data is None:
            raise _missing("a change of a doc without its name or new data")
        if data.namespace not in {"", old.namespace}:
            raise _refused("newData.namespace", data.namespace, "the doc's: a namespace stays")
        if mode is Mode.CHANGE_LEASE:
            return self._renew_set(old, data)
        return ChangeDoc(self._doc(old, "changes"), data.content, delay=self._delay(data))

    def _renew_set(self, old: DocName, data: DocData) -> RenewSet:
        if old.id:
            raise _refused("oldId.id", old.id, "a key: a lease is a set's")
        if data.id or data.content is not None or data.secondary_key or old.secondary_key:
            raise _missing("a lease change with more than an arrival")
        if data.key not in {"", old.key}:
            raise _refused("newData.key", data.key, "the set's: a key stays")
        return RenewSet(_set(old), self._delay(data))

    def delete_doc(self, old: DocName) -> DeleteDoc:
        """The end of a doc."""
        return DeleteDoc(self._doc(old, "deletes"))

    def depend_doc(self, name: DocName) -> DependDoc | DependSet:
        """A condition on a doc, or on a set."""
        if not name.key:
            return DependDoc(self._doc(name, "dependencies"))
        if name.id or name.secondary_key:
            raise _missing("a dependency with a key and another name")
        if self.protocol == 1:
            raise _refused("key", name.key, "an id: keys are named by protocol 2")
        return DependSet(_set(name))

    def _doc(self, name: DocName, what: str) -> DocRef:
        if name.id and not name.key:
            return DocRef(name.namespace, name.id, name.version)
        if name.id or not name.key:
            raise _missing("a doc that is not named by an id alone")
        raise UnsupportedRequestError(
            f"{what} of docs by key are not served. Nothing was written. Name the doc by its id."
        )

    # -- times ------------------------------------------------------------------------------------

    def _arrival(self, data: TaskData) -> _Arrival:
        """When a task arrives. A date of protocol 1 is kept as it is."""
        if self.protocol != 1 or not self._ms_left(data):
            return {"delay": self._delay(data)}
        try:
            return {"at": EPOCH + data.at_ms * MILLISECOND}
        except OverflowError:
            raise _refused("atMs", data.at_ms, "a date before the year 10000") from None

    def _delay(self, data: TaskData | DocData) -> float:
        """Seconds from now until it arrives; 0: at once."""
        key, given = ("atMs", data.at_ms) if self.protocol == 1 else ("byMs", data.by_ms)
        return seconds_of(self._ms_left(data), key, given)

    def _ms_left(self, data: TaskData | DocData) -> int:
        """Milliseconds from now until it arrives; 0: at once."""
        if self.protocol == 1:
            if data.by_ms:
                raise _refused("byMs", data.by_ms, "atMs, or protocol 2")
            left = data.at_ms - ms_of(self.now)
            return 0 if data.at_ms <= 0 or left < -(OLDEST // MILLISECOND) else left
        if data.at_ms > 0:
            raise _refused("atMs", data.at_ms, "byMs: protocol 2 names no dates")
        return data.by_ms

    def _check_mode(self, mode: Mode) -> None:
        if self.protocol == 1 and mode is not Mode.CHANGE_DEFAULT:
            raise _refused("mode", mode.value, f"{Mode.CHANGE_DEFAULT}, or protocol 2")


def named(task: TaskRef | None) -> TaskRef:
    """The task that a change, delete or dependency names. Raises InvalidRequestError."""
    if task is None or not task.id:
        raise _missing("an action that names no task")
    return task


def _set(name: DocName) -> SetRef:
    if not name.key:
        raise _missing("a doc set without its key")
    return SetRef(name.namespace, name.key, name.version)


def _missing(what: str) -> InvalidRequestError:
    return InvalidRequestError(f"{what} can't be done. Nothing was written.", key="request")


def _refused(key: str, value: object, allowed: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{key}={value!r:.80} is not allowed. Nothing was written. Allowed: {allowed}.",
        key=key,
        value=value,
    )
