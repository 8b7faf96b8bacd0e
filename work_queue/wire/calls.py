"""The calls, and their bytes: JSON, typed, of a version."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from queue_core.errors import InvalidRequestError, StickybusError
from work_queue.counts import NamespaceStats, WorkStats
from work_queue.document import Doc, DocSet
from work_queue.finished_task import FinishedTask, KeptHistory
from work_queue.limit import QueueLimit
from work_queue.modification import Action
from work_queue.modified import Modified
from work_queue.requests import (
    ClaimRequest,
    DocClaimRequest,
    DocQuery,
    HistoryDeletion,
    HistoryQuery,
    HistorySetting,
    LimitSetting,
    NameQuery,
    ScheduleSetting,
    TaskQuery,
)
from work_queue.schedule import TaskSchedule
from work_queue.task import Task
from work_queue.wire.failures import Failure, error_of, failure_of
from work_queue.wire.mirrors import from_wire, mirrored, to_wire

VERSION = 1
"""Of the wire. A service refuses others; so raise it when a request gets another meaning."""
PATH = "/work-queue/v1"
"""Of all calls over HTTP."""
SERVICE = "stickybus.WorkQueue"
"""Of all calls over gRPC."""
CONTENT_TYPE = "application/vnd.stickybus.work-queue+json"
"""By it a client tells our answers from those of others on the way."""

Request = TypeVar("Request")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that may wait.

    Attributes:
        request: What is claimed.
        timeout_seconds: How long it waits; 0: not at all.
        ticket: A name for the wait, by which `Leave` ends it.
    """

    request: ClaimRequest
    timeout_seconds: float
    ticket: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The end of a claim: if it waits, it answers at once, and claims nothing more.

    What it took, the service releases, even if the answer is on its way. The answer is whether the
    service ends it; else the connection has to.
    """

    ticket: str


@dataclass(frozen=True, slots=True)
class Modify:
    """A modification."""

    claimant: str
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Histories:
    """A look at which queues keep history."""


@dataclass(frozen=True, slots=True)
class RemoveLimit:
    """The end of the limit of a queue."""

    queue: str


@dataclass(frozen=True, slots=True)
class Limits:
    """A look at the limits of queues; none are all."""

    queues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoveSchedule:
    """The end of a recurring schedule of a queue."""

    queue: str
    name: str


@dataclass(frozen=True, slots=True)
class Schedules:
    """A look at the recurring schedules of queues; none are all."""

    queues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Time:
    """A look at the clock that decides."""


class _Asked(Struct, frozen=True):
    version: int
    request: Raw = Raw(b"{}")


class _Answered(Struct, omit_defaults=True, frozen=True):
    result: Raw = Raw()
    error: Raw = Raw()


_FAILURE = msgspec.json.Decoder(mirrored(Failure, strict=False))


class Call(Generic[Request, Result]):
    """One call: the type of its request, and that of its result.

    Attributes:
        name: As paths name it.
        writes: Whether it changes anything, so that nobody knows what a lost answer meant.
    """

    def __init__(
        self, name: str, request: type[Request], result: Any, *, writes: bool = False
    ) -> None:
        self.name = name
        self.writes = writes
        self._request = msgspec.json.Decoder(mirrored(request))
        self._result = msgspec.json.Decoder(mirrored(result, strict=False))

    def ask(self, request: Request, cap_bytes: int) -> bytes:
        """A request's bytes. Raises PayloadError for a value that can't be stored."""
        return msgspec.json.encode(_Asked(VERSION, Raw(_bytes(request, cap_bytes))))

    def asked(self, data: bytes) -> Request:
        """The request. Raises InvalidRequestError for what is none of this version."""
        try:
            asked = msgspec.json.decode(data, type=_Asked)
            if asked.version != VERSION:
                raise InvalidRequestError(
                    f"{self.name}: the client speaks version {asked.version} of the wire, this "
                    f"service version {VERSION}. Nothing was written. Upgrade the older of the "
                    "two.",
                    key="version",
                    value=asked.version,
                )
            request: Request = from_wire(self._request.decode(asked.request))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidRequestError(
                f"{self.name}: the request does not fit this call: {error}. Nothing was written.",
                key="request",
            ) from error
        return request

    def answer(self, result: Result) -> bytes:
        """A result's bytes."""
        return msgspec.json.encode(_Answered(Raw(_bytes(result))))

    def answered(self, data: bytes) -> Result:
        """The result, or the error, which is raised. Raises ValueError for what is no answer."""
        answered = msgspec.json.decode(data, type=_Answered)
        if bytes(answered.error):
            raise error_of(from_wire(_FAILURE.decode(answered.error)))
        if not bytes(answered.result):
            raise ValueError("neither a result nor an error")
        result: Result = from_wire(self._result.decode(answered.result))
        return result


def _bytes(value: Any, cap_bytes: int = sys.maxsize) -> bytes:
    return msgspec.json.encode(to_wire(value, cap_bytes))


def refuse(error: StickybusError) -> bytes:
    """The bytes of an answer that is an error."""
    return msgspec.json.encode(_Answered(error=Raw(_bytes(failure_of(error)))))


def method_of(name: str) -> str:
    """The path of a call over gRPC."""
    return f"/{SERVICE}/{name.title().replace('_', '')}"


CLAIM = Call[Claim, list[Task]]("claim", Claim, list[Task], writes=True)
LEAVE = Call[Leave, bool]("leave", Leave, bool)
CLAIM_DOCS = Call[DocClaimRequest, list[DocSet]](
    "claim_docs", DocClaimRequest, list[DocSet], writes=True
)
MODIFY = Call[Modify, Modified]("modify", Modify, Modified, writes=True)
TASKS = Call[TaskQuery, list[Task]]("tasks", TaskQuery, list[Task])
DOCS = Call[DocQuery, list[Doc]]("docs", DocQuery, list[Doc])
QUEUE_STATS = Call[NameQuery, list[WorkStats]]("queue_stats", NameQuery, list[WorkStats])
NAMESPACE_STATS = Call[NameQuery, list[NamespaceStats]](
    "namespace_stats", NameQuery, list[NamespaceStats]
)
SET_HISTORY = Call[HistorySetting, bool]("set_history", HistorySetting, bool, writes=True)
HISTORIES = Call[Histories, list[KeptHistory]]("histories", Histories, list[KeptHistory])
FINISHED_TASKS = Call[HistoryQuery, list[FinishedTask]](
    "finished_tasks", HistoryQuery, list[FinishedTask]
)
DELETE_HISTORY = Call[HistoryDeletion, int]("delete_history", HistoryDeletion, int, writes=True)
SET_LIMIT = Call[LimitSetting, QueueLimit]("set_limit", LimitSetting, QueueLimit, writes=True)
REMOVE_LIMIT = Call[RemoveLimit, bool]("remove_limit", RemoveLimit, bool, writes=True)
LIMITS = Call[Limits, list[QueueLimit]]("limits", Limits, list[QueueLimit])
SET_SCHEDULE = Call[ScheduleSetting, TaskSchedule](
    "set_schedule", ScheduleSetting, TaskSchedule, writes=True
)
REMOVE_SCHEDULE = Call[RemoveSchedule, bool]("remove_schedule", RemoveSchedule, bool, writes=True)
SCHEDULES = Call[Schedules, list[TaskSchedule]]("schedules", Schedules, list[TaskSchedule])
TIME = Call[Time, datetime]("time", Time, datetime)
