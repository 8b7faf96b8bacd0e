"""The work queue at a service's address, put together."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from queue_core.errors import (
    CommitUnknownError,
    ConfigurationError,
    DatabaseUnreachableError,
    InvalidConnectionError,
    LifecycleError,
    StickybusError,
)
from work_queue.counts import NamespaceStats, WorkStats
from work_queue.document import Doc, DocSet
from work_queue.finished_task import FinishedTask, KeptHistory
from work_queue.limit import QueueLimit
from work_queue.modification import Action, Renew
from work_queue.modified import Modified
from work_queue.remote.address import Address
from work_queue.remote.background import Background
from work_queue.remote.transport import LostError, StrangeError, Transport, UnsentError
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
from work_queue.wire import calls as wire

ANSWER_SECONDS = 60.0
"""The longest time to an answer, besides what a claim waits."""
ROUND_SECONDS = 20.0
"""How long one call of a claim waits: less than what is on the way lets a connection idle."""
LEAVE_SECONDS = 2.0
"""How long the end of a claim that nobody wants any more may take, before its connection is cut."""

Request = TypeVar("Request")
Result = TypeVar("Result")


class RemoteBackend:
    """See `Backend`. May be used by any threads and event loops, and after a fork."""

    takes_connections = False

    def __init__(
        self, address: Address, connect: Callable[[Address], Transport], *, max_value_bytes: int
    ) -> None:
        self.address = address
        self._connect = connect
        self._cap_bytes = max_value_bytes
        self._background = Background()
        self._transports = dict[asyncio.AbstractEventLoop, Transport]()
        """One for this process, and those from before a fork: what ends them would be sent."""
        self._claiming = set[asyncio.Task[Any]]()
        self._closed = self._opened = False
        try:
            self.time()
            self._opened = True
        except BaseException:
            self.close()
            raise

    # -- claims -----------------------------------------------------------------------------------

    def try_claim(self, request: ClaimRequest) -> list[Task]:
        """See `Backend.try_claim`."""
        self._check_open()
        return self._background.run(self._claim(request, 0.0))

    def claim(self, request: ClaimRequest, timeout_seconds: float | None) -> list[Task]:
        """See `Backend.claim`."""
        self._check_open()
        return self._background.run(self._claim(request, timeout_seconds))

    async def try_claim_async(self, request: ClaimRequest) -> list[Task]:
        """See `Backend.try_claim_async`."""
        self._check_open()
        return await self._background.run_async(self._claim(request, 0.0))

    async def claim_async(self, request: ClaimRequest, timeout_seconds: float | None) -> list[Task]:
        """See `Backend.claim_async`."""
        self._check_open()
        return await self._background.run_async(self._claim(request, timeout_seconds))

    async def _claim(self, request: ClaimRequest, timeout_seconds: float | None) -> list[Task]:
        """Claim in rounds, until there is something, or the time has passed."""
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        current = asyncio.current_task()
        assert current is not None  # noqa: S101 -- coroutines run in tasks
        self._claiming.add(current)
        try:
            while True:
                left = ROUND_SECONDS if end is None else max(0.0, end - time.monotonic())
                wait = min(left, ROUND_SECONDS)
                if taken := await self._round(wire.Claim(request, wait, secrets.token_hex(16))):
                    return taken
                if end is not None and time.monotonic() >= end:
                    return []
        except asyncio.CancelledError:
            self._check_open()
            raise
        finally:
            self._claiming.discard(current)

    async def _round(self, claim: wire.Claim) -> list[Task]:
        asking = asyncio.ensure_future(self._ask(wire.CLAIM, claim, claim.timeout_seconds))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            await self._leave(claim, asking)
            raise

    async def _leave(self, claim: wire.Claim, asking: asyncio.Future[list[Task]]) -> None:
        """End a claim, and give back what it has taken by now. If that fails, its lease ends."""
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._ask(wire.LEAVE, wire.Leave(claim.ticket))
                taken = await asking
                if taken:
                    release = tuple(Renew(task.ref, 0.0) for task in taken)
                    await self._ask(wire.MODIFY, wire.Modify(claim.request.claimant, release))
        except (StickybusError, TimeoutError):
            pass
        finally:
            asking.cancel()

    def claim_docs(self, request: DocClaimRequest) -> list[DocSet]:
        """See `Backend.claim_docs`."""
        return self._call(wire.CLAIM_DOCS, request)

    # -- modifications and reads ------------------------------------------------------------------

    def modify(self, claimant: str, actions: Sequence[Action], connection: Any) -> Modified:
        """See `Backend.modify`."""
        _no(connection)
        return self._call(wire.MODIFY, wire.Modify(claimant, tuple(actions)))

    def tasks(self, query: TaskQuery, connection: Any) -> list[Task]:
        """See `Backend.tasks`."""
        _no(connection)
        return self._call(wire.TASKS, query)

    def docs(self, query: DocQuery, connection: Any) -> list[Doc]:
        """See `Backend.docs`."""
        _no(connection)
        return self._call(wire.DOCS, query)

    def queues(self, query: NameQuery) -> dict[str, int]:
        """See `Backend.queues`."""
        return {stats.queue: stats.tasks for stats in self.queue_stats(query)}

    def queue_stats(self, query: NameQuery) -> list[WorkStats]:
        """See `Backend.queue_stats`."""
        return self._call(wire.QUEUE_STATS, query)

    def namespace_stats(self, query: NameQuery) -> list[NamespaceStats]:
        """See `Backend.namespace_stats`."""
        return self._call(wire.NAMESPACE_STATS, query)

    def set_history(self, setting: HistorySetting, connection: Any) -> None:
        """See `Backend.set_history`."""
        _no(connection)
        self._call(wire.SET_HISTORY, setting)

    def histories(self) -> list[KeptHistory]:
        """See `Backend.histories`."""
        return self._call(wire.HISTORIES, wire.Histories())

    def finished_tasks(self, query: HistoryQuery, connection: Any) -> list[FinishedTask]:
        """See `Backend.finished_tasks`."""
        _no(connection)
        return self._call(wire.FINISHED_TASKS, query)

    def delete_history(self, deletion: HistoryDeletion) -> int:
        """See `Backend.delete_history`."""
        return self._call(wire.DELETE_HISTORY, deletion)

    def set_limit(self, setting: LimitSetting) -> QueueLimit:
        """See `Backend.set_limit`."""
        return self._call(wire.SET_LIMIT, setting)

    def remove_limit(self, queue: str) -> bool:
        """See `Backend.remove_limit`."""
        return self._call(wire.REMOVE_LIMIT, wire.RemoveLimit(queue))

    def limits(self, queues: tuple[str, ...]) -> list[QueueLimit]:
        """See `Backend.limits`."""
        return self._call(wire.LIMITS, wire.Limits(queues))

    def set_schedule(self, setting: ScheduleSetting) -> TaskSchedule:
        """See `Backend.set_schedule`."""
        return self._call(wire.SET_SCHEDULE, setting)

    def remove_schedule(self, queue: str, name: str) -> bool:
        """See `Backend.remove_schedule`."""
        return self._call(wire.REMOVE_SCHEDULE, wire.RemoveSchedule(queue, name))

    def schedules(self, queues: tuple[str, ...]) -> list[TaskSchedule]:
        """See `Backend.schedules`."""
        return self._call(wire.SCHEDULES, wire.Schedules(queues))

    def time(self) -> datetime:
        """See `Backend.time`."""
        return self._call(wire.TIME, wire.Time())

    def close(self) -> None:
        """See `Backend.close`. In a child process of a fork only its memory is let go."""
        self._closed = True
        self._background.end(self._end)

    async def _end(self) -> None:
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for claim in running & self._claiming:
            claim.cancel()
        if running:
            await asyncio.wait(running, timeout=LEAVE_SECONDS)
        for call in running:
            call.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if (transport := self._transports.pop(asyncio.get_running_loop(), None)) is not None:
            await transport.close()

    def _check_open(self) -> None:
        if self._closed:
            raise LifecycleError("the work queue was closed. Nothing was done.")

    # -- calls ------------------------------------------------------------------------------------

    def _call(self, call: wire.Call[Request, Result], request: Request) -> Result:
        """Do a call from any thread, which also writes and reads the bytes."""
        self._check_open()
        body = call.ask(request, self._cap_bytes)
        return self._read(call, self._background.run(self._send(call, body)))

    async def _ask(
        self, call: wire.Call[Request, Result], request: Request, wait_seconds: float = 0.0
    ) -> Result:
        body = call.ask(request, self._cap_bytes)
        return self._read(call, await self._send(call, body, wait_seconds))

    async def _send(
        self, call: wire.Call[Any, Any], body: bytes, wait_seconds: float = 0.0
    ) -> bytes:
        try:
            return await self._carrier().call(call.name, body, wait_seconds + ANSWER_SECONDS)
        except UnsentError as error:
            raise DatabaseUnreachableError(
                f"{call.name}: the service {self.address} can't be reached: {error}. Nothing was "
                "sent, and nothing was done.",
                url=str(self.address),
            ) from error
        except LostError as error:
            raise self._lost(call, str(error)) from error
        except StrangeError as error:
            raise self._strange(call, str(error)) from error
        except asyncio.CancelledError:
            if self._closed and call is not wire.CLAIM:
                raise self._lost(call, "the work queue was closed") from None
            raise

    def _read(self, call: wire.Call[Request, Result], data: bytes) -> Result:
        try:
            return call.answered(data)
        except ValueError as error:
            if self._opened:
                raise self._lost(call, f"what it says can't be read: {error}") from error
            raise self._strange(call, str(error)) from error

    def _carrier(self) -> Transport:
        """The connections of this process."""
        loop = asyncio.get_running_loop()
        if loop not in self._transports:
            self._transports[loop] = self._connect(self.address)
        return self._transports[loop]

    def _lost(self, call: wire.Call[Any, Any], why: str) -> DatabaseUnreachableError:
        url = str(self.address)
        said = f"{call.name}: the service {url} gave no answer: {why}."
        if not call.writes:
            return DatabaseUnreachableError(said, url=url)
        return CommitUnknownError(
            f"{said} It may have been done, or not: look at what is there before you call again. "
            "What a claim has taken comes back when its lease ends.",
            url=url,
        )

    def _strange(self, call: wire.Call[Any, Any], why: str) -> StickybusError:
        url = str(self.address)
        said = f"{call.name}: what answers at {url} is no work queue service: {why}."
        if self._opened:  # it was one before: something on the way answers for it
            return DatabaseUnreachableError(f"{said} Nothing was done.", url=url)
        return ConfigurationError(f"{said} Look at the address.", key="database")


def _no(connection: Any) -> None:
    if connection is not None:
        raise InvalidConnectionError(
            "a work queue at a service's address takes no connection=: the service has its own "
            "transactions. Nothing was written. Open the database itself, or leave connection= out."
        )
