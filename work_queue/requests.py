"""Requests to a work queue: plain values, which are checked, and can be sent anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from queue_core.model.missed_policy import MissedPolicy
from work_queue.document import DocClaim
from work_queue.refs import TaskPlace, TaskRef


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A wish for tasks of one of several queues."""

    claimant: str
    queues: tuple[str, ...]
    lease_seconds: float
    limit: int = 1


@dataclass(frozen=True, slots=True)
class DocClaimRequest:
    """A wish for doc sets, all or none: for a time, or until a claimed task arrives."""

    claimant: str
    claims: tuple[DocClaim, ...]
    lease_seconds: float
    until: TaskRef | None = None


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """Which tasks are read; conditions that are given all hold."""

    queue: str | None = None
    ids: tuple[str, ...] | None = None
    claimant: str | None = None
    limit: int | None = None
    with_values: bool = True
    after: TaskPlace | None = None
    """Only those after this place, in a read that names no ids."""
    failed: bool = False
    """Only those that a failure has moved; of those also hold the two that follow."""
    failed_in: str | None = None
    error_text: str | None = None


@dataclass(frozen=True, slots=True)
class DocQuery:
    """Which docs of a namespace are read: by `ids`, by one `key`, or by a range of keys."""

    namespace: str
    ids: tuple[str, ...] | None = None
    key: str | None = None
    first_key: str = ""
    end_key: str = ""
    limit: int | None = None
    with_contents: bool = True


@dataclass(frozen=True, slots=True)
class HistorySetting:
    """Whether a queue keeps the history of its tasks."""

    queue: str
    keep: bool


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Which tasks of history are read; conditions that are given all hold."""

    queue: str | None = None
    ids: tuple[str, ...] | None = None
    since: datetime | None = None
    before: datetime | None = None
    limit: int | None = None
    with_values: bool = True


@dataclass(frozen=True, slots=True)
class HistoryDeletion:
    """The deletion of the first tasks of a queue's history that ended before a date."""

    queue: str
    before: datetime
    limit: int


@dataclass(frozen=True, slots=True)
class LimitSetting:
    """The limit that a queue shall have; `by` sets it."""

    queue: str
    concurrency: int | None
    rate: int | None
    per: timedelta
    burst: int
    by: str


@dataclass(frozen=True, slots=True)
class ScheduleSetting:
    """The recurring schedule that a queue shall have, by a cron line or an interval."""

    queue: str
    name: str
    value: Any
    cron: str | None
    every: timedelta | None
    timezone: str
    missed: MissedPolicy


@dataclass(frozen=True, slots=True)
class NameQuery:
    """Which queues or namespaces: with one of the prefixes, or one of the names; all by default."""

    prefixes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    limit: int | None = None
