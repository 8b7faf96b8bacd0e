"""What is asked of a work queue: plain values, which are checked, and can be sent anywhere."""

from __future__ import annotations

from dataclasses import dataclass

from work_queue.document import DocClaim
from work_queue.refs import TaskRef


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
class NameQuery:
    """Which queues or namespaces: with one of the prefixes, or one of the names; all by default."""

    prefixes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    limit: int | None = None
