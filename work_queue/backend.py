"""The backend of a work queue: a database, or a service somewhere else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

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


class Backend(Protocol):
    """`connection` is a caller's, whose transaction a call joins; only a database takes one."""

    takes_connections: bool
    """Whether it is one."""

    def try_claim(self, request: ClaimRequest) -> list[Task]:
        """Claim tasks that are available now; none if there are none."""
        ...

    def claim(self, request: ClaimRequest, timeout_seconds: float | None) -> list[Task]:
        """Wait until something can be claimed; nothing if the time has passed."""
        ...

    async def try_claim_async(self, request: ClaimRequest) -> list[Task]:
        """As `try_claim`. If it is cancelled, nothing stays claimed."""
        ...

    async def claim_async(self, request: ClaimRequest, timeout_seconds: float | None) -> list[Task]:
        """As `claim`, without a thread that waits. If it is cancelled, nothing stays claimed."""
        ...

    def modify(self, claimant: str, actions: Sequence[Action], connection: Any) -> Modified:
        """Do all of it, or raise DependencyError."""
        ...

    def claim_docs(self, request: DocClaimRequest) -> list[DocSet]:
        """Claim all of the sets, in the order of the request, or raise DependencyError."""
        ...

    async def claim_docs_async(self, request: DocClaimRequest) -> list[DocSet]:
        """As `claim_docs`. If it is cancelled, nothing stays claimed."""
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
        """Read the counts of each queue."""
        ...

    def namespace_stats(self, query: NameQuery) -> list[NamespaceStats]:
        """Read the counts of each namespace."""
        ...

    def set_history(self, setting: HistorySetting, connection: Any) -> None:
        """Let a queue keep history, or no more."""
        ...

    def histories(self) -> list[KeptHistory]:
        """Read which queues keep history, or kept it once."""
        ...

    def finished_tasks(self, query: HistoryQuery, connection: Any) -> list[FinishedTask]:
        """Read history, the last end first."""
        ...

    def delete_history(self, deletion: HistoryDeletion) -> int:
        """Delete the oldest tasks of a queue's history; how many is the answer."""
        ...

    def set_limit(self, setting: LimitSetting) -> QueueLimit:
        """Limit a queue, or replace its limit; the limit as it is stored is the answer."""
        ...

    def remove_limit(self, queue: str) -> bool:
        """End the limit of a queue; False if there is none."""
        ...

    def limits(self, queues: tuple[str, ...]) -> list[QueueLimit]:
        """Read the limits of these queues, or all if there are none, by queue."""
        ...

    def set_schedule(self, setting: ScheduleSetting) -> TaskSchedule:
        """Declare a recurring schedule; the schedule as it is stored is the answer."""
        ...

    def remove_schedule(self, queue: str, name: str) -> bool:
        """End a recurring schedule; False if there is none."""
        ...

    def schedules(self, queues: tuple[str, ...]) -> list[TaskSchedule]:
        """Read the schedules of these queues, or all if there are none, by queue and name."""
        ...

    def time(self) -> datetime:
        """Read the clock that decides."""
        ...

    def close(self) -> None:
        """End all waits, and release all resources."""
        ...
