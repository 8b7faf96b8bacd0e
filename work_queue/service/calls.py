"""Every call of the service, whatever the wire."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from queue_core.errors import DatabaseUnreachableError, LifecycleError
from work_queue.counts import NamespaceStats, WorkStats
from work_queue.document import Doc, DocClaim, DocSet
from work_queue.faults import DependencyError
from work_queue.finished_task import FinishedTask
from work_queue.modification import Action, Renew
from work_queue.modified import Modified
from work_queue.refs import TaskRef
from work_queue.requests import (
    DocQuery,
    HistoryDeletion,
    HistoryQuery,
    NameQuery,
    TaskQuery,
)
from work_queue.rights import (
    Kind,
    Need,
    PermissionDeniedError,
    Right,
    UnauthenticatedError,
)
from work_queue.service import needs
from work_queue.service.authoriser import Authoriser
from work_queue.service.caller import Caller
from work_queue.service.metrics import Metrics
from work_queue.service.pins import names_no_queue, pinned
from work_queue.service.setting_calls import SettingCalls
from work_queue.task import NOBODY, Task
from work_queue.values import UNREAD
from work_queue.work_queue import WorkQueue

PAGE_TASKS, FIRST_TASKS = 200, 10
"""Tasks that a stream of them holds at a time, at most and at first."""
PAGE_BYTES = 10_000_000
"""About what their values may have."""
PROBES = 4
"""Probes of health and metrics that are in the database at once, in threads of their own."""


class Calls(SettingCalls):
    """The work queue as wires call it. They say who calls; each call may be refused.

    All of them raise what the same call of `WorkQueue` raises, and what an authoriser raises. If a
    call is cancelled, nothing stays claimed.

    Args:
        work: The work queue.
        authoriser: Who is asked before each call. Default: nobody; all is allowed.
        registry: Where metrics go, which no other service uses. Default: a new one.
    """

    def __init__(
        self,
        work: WorkQueue,
        authoriser: Authoriser | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        super().__init__(
            work, authoriser, Metrics(CollectorRegistry() if registry is None else registry)
        )
        self.claiming = set[asyncio.Task[Any]]()
        self._ended = set[asyncio.Task[Any]]()
        self._stopping = False
        self._probes = ThreadPoolExecutor(PROBES, "work_queue-probe")

    async def claim(
        self,
        caller: Caller,
        queues: Sequence[str],
        *,
        claimant: str,
        lease_seconds: float | None,
        timeout_seconds: float | None,
        limit: int = 1,
    ) -> list[Task]:
        """Claim tasks, and wait for the first one; a time-out of 0: don't wait."""
        wanted = needs.of_claim(queues, claimant)
        with self.metrics.call("claim"):
            await self._allow(caller, wanted)
            claim = self._work.claim_many_async(
                *queues,
                limit=limit,
                lease_seconds=lease_seconds,
                timeout_seconds=timeout_seconds,
                claimant=claimant,
            )
            if timeout_seconds == 0:
                return await self._until_stop(claim)
            with self.metrics.waiting():
                taken = await self._until_stop(claim)
            if taken:
                await self._allow_still(caller, wanted, taken)
            return taken

    async def _allow_still(
        self, caller: Caller, wanted: Sequence[Need], taken: Sequence[Task]
    ) -> None:
        """Ask once more after a wait, in which rights may have been withdrawn."""
        try:
            await self._allow(caller, wanted)
        except BaseException:
            await self.give_back(taken)
            raise

    async def give_back(self, claimed: Sequence[Task] | Sequence[DocSet]) -> None:
        """Release what was claimed for a caller whom it did not reach.

        It was no claim then: of a task that many callers did not get, workers must not believe that
        it kills them.
        """
        if claimed:
            # If it changed in between, somebody has it, and needs nothing from us.
            with suppress(DependencyError):
                await self._work.modify_async(
                    *(_unclaim(one) for one in claimed), claimant=claimed[0].claimant
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
        with self.metrics.call("claim_docs"):
            await self._allow(caller, needs.of_doc_claim(claims, until, claimant))
            return await self._work.claim_docs_async(
                *claims, lease_seconds=lease_seconds, until=until, claimant=claimant
            )

    async def modify(self, caller: Caller, actions: Sequence[Action], *, claimant: str) -> Modified:
        """Insert, change, delete and check in one transaction."""
        with self.metrics.call("modify"):
            if self._authoriser is None:
                return await self._work.modify_async(*actions, claimant=claimant)
            if names_no_queue(actions):
                await self.know(caller)  # else anybody could make us look
            pins = await pinned(self._work, actions)
            await self._allow(caller, needs.of_actions(pins.known, claimant))
            try:
                modified = await self._work.modify_async(*pins.actions, claimant=claimant)
            except DependencyError as error:
                raise pins.told(error) from error
            return await self._readable(caller, modified)

    async def _readable(self, caller: Caller, modified: Modified) -> Modified:
        """What was written. Inserts meet tasks in any queue: the caller may not read all of them.

        The modification is done by then, so nothing is refused any more.
        """
        queues = {task.queue for task in modified.existing}
        hidden = {queue for queue in queues if not await self._may_read(caller, queue)}
        existing = (_named(task) if task.queue in hidden else task for task in modified.existing)
        return replace(modified, existing=tuple(existing))

    async def _may_read(self, caller: Caller, queue: str) -> bool:
        try:
            await self._allow(caller, needs.of_tasks([queue]))
        except (PermissionDeniedError, UnauthenticatedError, DatabaseUnreachableError):
            return False
        return True

    async def tasks(self, caller: Caller, query: TaskQuery) -> list[Task]:
        """Read tasks."""
        with self.metrics.call("tasks"):
            named = [] if query.queue is None else [query.queue]
            await self._allow(caller, needs.of_tasks(named))
            if query.failed:
                return await self._work.failed_tasks_async(
                    query.queue or "",
                    failed_in=query.failed_in,
                    error_text=query.error_text,
                    limit=query.limit,
                    after=query.after,
                    with_values=query.with_values,
                )
            found = await self._work.tasks_async(
                query.queue,
                ids=query.ids,
                claimant=query.claimant,
                limit=query.limit,
                with_values=query.with_values,
                after=query.after,
            )
            if query.queue is None:
                await self._allow(caller, needs.of_tasks(task.queue for task in found))
            return found

    async def pages(self, caller: Caller, query: TaskQuery) -> AsyncGenerator[list[Task], None]:
        """Read tasks page by page. Each page is one call, so few tasks are held at a time.

        How many fit, their predecessors tell: it is known only when they have been read.
        """
        if query.ids is not None:
            yield await self.tasks(caller, query)
            return
        left = query.limit if query.limit is not None and query.limit > 0 else sys.maxsize
        fit = FIRST_TASKS
        while left and not self._stopping:
            asked = min(fit, left)
            page = await self.tasks(caller, replace(query, limit=asked))
            yield page
            if len(page) < asked:
                return
            left -= asked
            fit = max(1, min(2 * fit, PAGE_TASKS, PAGE_BYTES // max(map(_bytes_of, page))))
            query = replace(query, after=page[-1].place)
        if left:
            raise _stops()

    async def docs(self, caller: Caller, query: DocQuery) -> list[Doc]:
        """Read docs."""
        with self.metrics.call("docs"):
            await self._allow(caller, needs.of_docs(query.namespace))
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
        """Read the counts of each queue."""
        with self.metrics.call("queue_stats"):
            await self._allow(caller, needs.of_names(Kind.QUEUE, query))
            return await self._work.queue_stats_async(
                *query.names, prefixes=query.prefixes, limit=query.limit
            )

    async def namespace_stats(self, caller: Caller, query: NameQuery) -> list[NamespaceStats]:
        """Read the counts of each namespace."""
        with self.metrics.call("namespace_stats"):
            await self._allow(caller, needs.of_names(Kind.NAMESPACE, query))
            return await self._work.namespace_stats_async(
                *query.names, prefixes=query.prefixes, limit=query.limit
            )

    async def finished_tasks(self, caller: Caller, query: HistoryQuery) -> list[FinishedTask]:
        """Read history."""
        with self.metrics.call("finished_tasks"):
            named = [] if query.queue is None else [query.queue]
            await self._allow(caller, needs.of_tasks(named))
            found = await self._work.finished_tasks_async(
                query.queue,
                ids=query.ids,
                since=query.since,
                before=query.before,
                limit=query.limit,
                with_values=query.with_values,
            )
            if query.queue is None:
                await self._allow(caller, needs.of_tasks(task.queue for task in found))
            return found

    async def delete_history(self, caller: Caller, deletion: HistoryDeletion) -> int:
        """Delete the oldest tasks of a queue's history."""
        with self.metrics.call("delete_history"):
            await self._allow(caller, needs.of_queue(Right.DELETE, deletion.queue))
            return await self._work.truncate_history_async(
                deletion.queue, before=deletion.before, limit=deletion.limit
            )

    async def know(self, caller: Caller) -> None:
        """Raise UnauthenticatedError unless the caller is known."""
        await self._allow(caller, [])

    async def time(self, caller: Caller) -> datetime:
        """Read the clock that decides."""
        with self.metrics.call("time"):
            await self.know(caller)
            return await self._work.time_async()

    async def check(self) -> None:
        """Raise DatabaseUnreachableError unless the database answers. Anybody may ask."""
        await asyncio.get_running_loop().run_in_executor(self._probes, self._work.time)

    async def scrape(self, caller: Caller) -> bytes:
        """The metrics for Prometheus, which name all queues."""
        await self._allow(caller, needs.of_names(Kind.QUEUE, NameQuery()))
        return await asyncio.get_running_loop().run_in_executor(
            self._probes, generate_latest, self.metrics.registry
        )

    def stop(self) -> None:
        """End all waiting claims, and take no more; they raise LifecycleError."""
        self._stopping = True
        for task in self.claiming:
            task.cancel()
        self._ended |= self.claiming

    async def _until_stop(self, claim: Coroutine[Any, Any, list[Task]]) -> list[Task]:
        """Await a claim in this very task: in one of its own, what it takes could get lost."""
        task = asyncio.current_task()
        if self._stopping or task is None:
            claim.close()
            raise _stops()
        self.claiming.add(task)
        try:
            return await claim
        except asyncio.CancelledError:
            if task in self._ended and task.uncancel() == 0:
                raise _stops() from None
            raise
        finally:
            self.claiming.discard(task)
            self._ended.discard(task)


def _named(task: Task) -> Task:
    """A task's id, version, queue and dates, without its value."""
    empty: dict[str, Any] = {"claims": 0, "attempt": 0, "err": "", "failed_in": ""}
    return replace(task, value=UNREAD, claimant=NOBODY, **empty)


def _bytes_of(task: Task) -> int:
    """About how many bytes a task's value has; one at least."""
    if task.value is UNREAD:
        return 1
    return len(msgspec.json.encode(task.value))


def _unclaim(claimed: Task | DocSet) -> Action:
    if isinstance(claimed, Task):
        return Renew(claimed.ref, 0.0, undo_claim=True, with_value=False)
    return claimed.release()


def _stops() -> LifecycleError:
    return LifecycleError("the service stops. Nothing was claimed. Try again when it runs.")
