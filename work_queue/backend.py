"""What a work queue stands on: a database, or a service somewhere else.

Requests are checked before they come here, and hold plain values only: they can be sent anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from work_queue.counts import NamespaceStats, WorkStats
from work_queue.document import Doc, DocClaim, DocSet
from work_queue.modification import Action, Modified
from work_queue.refs import TaskRef
from work_queue.task import Task


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


class Backend(Protocol):
    """`connection` is a caller's, whose transaction a call joins; only a database takes one."""

    def try_claim(self, request: ClaimRequest) -> list[Task]:
        """Claim what is available now; nothing if there is nothing."""
        ...

    def claim(self, request: ClaimRequest, timeout_seconds: float | None) -> list[Task]:
        """Wait until something can be claimed; nothing if the time has passed."""
        ...

    async def try_claim_async(self, request: ClaimRequest) -> list[Task]:
        """As `try_claim`. If it is cancelled, nothing stays claimed."""
        ...

    async def claim_async(
        self, request: ClaimRequest, timeout_seconds: float | None
    ) -> list[Task]:
        """As `claim`, without a thread that waits. If it is cancelled, nothing stays claimed."""
        ...

    def modify(self, claimant: str, actions: Sequence[Action], connection: Any) -> Modified:
        """Do all of it, or raise DependencyError."""
        ...

    def claim_docs(self, request: DocClaimRequest) -> list[DocSet]:
        """Claim all of the sets, in the order of the request, or raise DependencyError."""
        ...

    def tasks(self, query: TaskQuery, connection: Any) -> list[Task]:
        """Read tasks."""
        ...

    def docs(self, query: DocQuery, connection: Any) -> list[Doc]:
        """Read docs."""
        ...

    def queues(self, query: NameQuery) -> dict[str, int]:
        """Read how many tasks each queue has."""
        ...

    def queue_stats(self, query: NameQuery) -> list[WorkStats]:
        """Read what each queue has."""
        ...

    def namespace_stats(self, query: NameQuery) -> list[NamespaceStats]:
        """Read what each namespace has."""
        ...

    def time(self) -> datetime:
        """Read the clock that decides."""
        ...

    def close(self) -> None:
        """End all waits, and let go of what is open."""
        ...
