"""The answers of the wire's calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from queue_core.errors import (
    DatabaseUnreachableError,
    InvalidRequestError,
    LifecycleError,
    StickybusError,
)
from work_queue.document import DocSet
from work_queue.finished_task import KeptHistory
from work_queue.limit import QueueLimit
from work_queue.modified import Modified
from work_queue.requests import DocClaimRequest
from work_queue.schedule import TaskSchedule
from work_queue.service.caller import Caller
from work_queue.service.calls import Calls
from work_queue.service.unavailable import for_callers
from work_queue.task import Task
from work_queue.values import UNREAD
from work_queue.wire import calls as wire

LATE_SECONDS = 60.0
"""For how long the end of a claim is remembered that is still to arrive."""
MOST_LEFT = 100_000
"""Ends that are remembered."""
LONGEST_TICKET = 64
"""Characters of a ticket. The library's clients send 32."""
GRANTED_SECONDS = 10.0
"""For how long a claim that took something can still be ended: its caller may not have seen it."""
LONGEST_CLAIM_SECONDS = 60.0
"""How long one call may wait; a client that waits longer calls again."""


async def nothing() -> None:
    """Undo what has left nothing behind."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call has come to.

    Attributes:
        body: Its bytes.
        error: The error, if it was refused.
        undo: What is to be done if nobody reads the answer: what was claimed is given back.
    """

    body: bytes
    error: StickybusError | None = None
    undo: Callable[[], Awaitable[None]] = nothing


class Answers:
    """Takes the bytes of a request, and gives those of an answer; for any transport."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._waiting = dict[str, asyncio.Task[Any]]()
        """Claims that wait, by ticket."""
        self._left = set[str]()
        """Tickets of claims that nobody wants any more, even if they are still to arrive."""
        self._granted = dict[str, list[Task]]()
        """What claims took lately, by ticket, without values."""
        self._methods: dict[str, tuple[wire.Call[Any, Any], Callable[..., Awaitable[Any]]]] = {
            call.name: (call, method)
            for call, method in (
                (wire.CLAIM, self._claim),
                (wire.LEAVE, self._leave),
                (wire.CLAIM_DOCS, self._claim_docs),
                (wire.MODIFY, self._modify),
                (wire.TASKS, calls.tasks),
                (wire.DOCS, calls.docs),
                (wire.QUEUE_STATS, calls.queue_stats),
                (wire.NAMESPACE_STATS, calls.namespace_stats),
                (wire.SET_HISTORY, calls.set_history),
                (wire.HISTORIES, self._histories),
                (wire.FINISHED_TASKS, calls.finished_tasks),
                (wire.DELETE_HISTORY, calls.delete_history),
                (wire.SET_LIMIT, calls.set_limit),
                (wire.REMOVE_LIMIT, self._remove_limit),
                (wire.LIMITS, self._limits),
                (wire.SET_SCHEDULE, calls.set_schedule),
                (wire.REMOVE_SCHEDULE, self._remove_schedule),
                (wire.SCHEDULES, self._schedules),
                (wire.TIME, self._time),
            )
        }

    undone = frozenset({wire.CLAIM.name, wire.CLAIM_DOCS.name})
    """The names of calls that leave something to be undone if nobody reads their answer."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all calls."""
        return tuple(self._methods)

    async def answer(self, name: str, caller: Caller, request: bytes) -> Answer:
        """Do one call. If it is cancelled, nothing stays claimed.

        Raises what is no error of this library: nobody outside shall read it.
        """
        call, method = self._methods[name]
        try:
            asked = call.asked(request)
            result = await method(caller, asked)
            if name in self.undone:
                return Answer(call.answer(result), undo=partial(self._calls.give_back, result))
            return Answer(call.answer(result))
        except LifecycleError as error:
            stops = DatabaseUnreachableError(
                f"{name}: the service stops: {error} Call again when it is back."
            )
            return Answer(wire.refuse(stops), stops)
        except Exception as error:
            told = for_callers(error)
            if not isinstance(told, StickybusError):
                raise
            return Answer(wire.refuse(told), told)

    async def _claim(self, caller: Caller, claim: wire.Claim) -> list[Task]:
        """Claim in this very task, which `_leave` cancels: between two, what it takes gets lost."""
        task = asyncio.current_task()
        _check(claim.ticket)
        if task is None or claim.ticket in self._left:
            return []
        self._waiting[claim.ticket] = task
        request = claim.request
        try:
            taken = await self._calls.claim(
                caller,
                request.queues,
                claimant=request.claimant,
                lease_seconds=request.lease_seconds,
                timeout_seconds=min(claim.timeout_seconds, LONGEST_CLAIM_SECONDS),
                limit=request.limit,
            )
        except asyncio.CancelledError:
            if claim.ticket in self._left and task.uncancel() == 0:
                return []
            raise
        finally:
            self._waiting.pop(claim.ticket, None)
        if taken:
            self._granted[claim.ticket] = [replace(one, value=UNREAD) for one in taken]
            loop = asyncio.get_running_loop()
            loop.call_later(GRANTED_SECONDS, self._granted.pop, claim.ticket, None)
        return taken

    async def _leave(self, caller: Caller, leave: wire.Leave) -> bool:
        """End a claim, and release what it took, whether or not its answer has been sent.

        A known caller that knows its ticket may do so: nobody can guess it.
        """
        await self._calls.know(caller)
        _check(leave.ticket)
        if len(self._left) < MOST_LEFT:
            self._left.add(leave.ticket)
            loop = asyncio.get_running_loop()
            loop.call_later(LATE_SECONDS, self._left.discard, leave.ticket)
            if (task := self._waiting.pop(leave.ticket, None)) is not None:
                task.cancel()
        await self._calls.give_back(self._granted.pop(leave.ticket, ()))
        return leave.ticket in self._left

    async def _claim_docs(self, caller: Caller, request: DocClaimRequest) -> list[DocSet]:
        return await self._calls.claim_docs(
            caller,
            request.claims,
            claimant=request.claimant,
            lease_seconds=None if request.until else request.lease_seconds,
            until=request.until,
        )

    async def _modify(self, caller: Caller, modify: wire.Modify) -> Modified:
        return await self._calls.modify(caller, modify.actions, claimant=modify.claimant)

    async def _histories(self, caller: Caller, _histories: wire.Histories) -> list[KeptHistory]:
        return await self._calls.histories(caller)

    async def _remove_limit(self, caller: Caller, remove: wire.RemoveLimit) -> bool:
        return await self._calls.remove_limit(caller, remove.queue)

    async def _limits(self, caller: Caller, limits: wire.Limits) -> list[QueueLimit]:
        return await self._calls.limits(caller, limits.queues)

    async def _remove_schedule(self, caller: Caller, remove: wire.RemoveSchedule) -> bool:
        return await self._calls.remove_schedule(caller, remove.queue, remove.name)

    async def _schedules(self, caller: Caller, schedules: wire.Schedules) -> list[TaskSchedule]:
        return await self._calls.schedules(caller, schedules.queues)

    async def _time(self, caller: Caller, _time: wire.Time) -> Any:
        return await self._calls.time(caller)


def _check(ticket: str) -> None:
    if len(ticket) > LONGEST_TICKET:
        raise InvalidRequestError(
            f"a ticket has at most {LONGEST_TICKET} characters. Nothing was written.", key="ticket"
        )
