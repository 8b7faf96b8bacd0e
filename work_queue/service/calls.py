"""Every call of the service, whatever the wire."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from work_queue.counts import NamespaceStats, WorkStats
from work_queue.document import Doc, DocClaim, DocSet
from work_queue.faults import DependencyError
from work_queue.modification import Action
from work_queue.modified import Modified
from work_queue.refs import TaskRef
from work_queue.requests import DocQuery, NameQuery, TaskQuery
from work_queue.service.caller import Caller
from work_queue.task import Task
from work_queue.work_queue import WorkQueue


class Calls:
    """The work queue as wires call it. They say who calls; each call may be refused.

    All of them raise what the same call of `WorkQueue` raises. If a call is cancelled, nothing
    stays claimed.
    """

    def __init__(self, work: WorkQueue) -> None:
        self._work = work

    async def claim(
        self,
        caller: Caller,
        queues: Sequence[str],
        *,
        claimant: str,
        lease_seconds: float,
        timeout_seconds: float | None,
        limit: int = 1,
    ) -> list[Task]:
        """Claim tasks, and wait for the first one; a time-out of 0: don't wait."""
        return await self._work.claim_many_async(
            *queues,
            limit=limit,
            lease_seconds=lease_seconds,
            timeout_seconds=timeout_seconds,
            claimant=claimant,
        )

    async def give_back(self, tasks: Sequence[Task]) -> None:
        """Release tasks that were claimed for a caller whom they did not reach."""
        if tasks:
            # If it changed in between, somebody has it, and needs nothing from us.
            with suppress(DependencyError):
                await self._work.modify_async(
                    *(task.release() for task in tasks), claimant=tasks[0].claimant
                )

    async def claim_docs(
        self,
        caller: Caller,
        claims: Sequence[DocClaim],
        *,
        claimant: str,
        lease_seconds: float | None,
        until: TaskRef | None,
    ) -> list[DocSet]:
        """Claim doc sets: all of them, or none."""
        return await self._work.claim_docs_async(
            *claims, lease_seconds=lease_seconds, until=until, claimant=claimant
        )

    async def modify(self, caller: Caller, actions: Sequence[Action], *, claimant: str) -> Modified:
        """Insert, change, delete and check in one transaction."""
        return await self._work.modify_async(*actions, claimant=claimant)

    async def tasks(self, caller: Caller, query: TaskQuery) -> list[Task]:
        """Read tasks."""
        return await self._work.tasks_async(
            query.queue,
            ids=query.ids,
            claimant=query.claimant,
            limit=query.limit,
            with_values=query.with_values,
        )

    async def docs(self, caller: Caller, query: DocQuery) -> list[Doc]:
        """Read docs."""
        return await self._work.docs_async(
            query.namespace,
            ids=query.ids,
            key=query.key,
            first_key=query.first_key,
            end_key=query.end_key,
            limit=query.limit,
            with_contents=query.with_contents,
        )

    async def queue_stats(self, caller: Caller, query: NameQuery) -> list[WorkStats]:
        """Read what each queue has."""
        return await self._work.queue_stats_async(
            *query.names, prefixes=query.prefixes, limit=query.limit
        )

    async def namespace_stats(self, caller: Caller, query: NameQuery) -> list[NamespaceStats]:
        """Read what each namespace has."""
        return await self._work.namespace_stats_async(
            *query.names, prefixes=query.prefixes, limit=query.limit
        )

    async def time(self, caller: Caller) -> datetime:
        """Read the clock that decides."""
        return await self._work.time_async()
