"""Claims at a service: they wait in rounds, and leave nothing behind if nobody wants them."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Any

from queue_core.errors import StickybusError
from work_queue.modification import Renew
from work_queue.remote.line import LEAVE_SECONDS, Line
from work_queue.requests import ClaimRequest
from work_queue.task import Task
from work_queue.wire import calls as wire

ROUND_SECONDS = 20.0
"""How long one call of a claim waits: less than proxies let a connection idle."""


class RemoteClaims:
    """Claims of tasks over a line."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.running = set[asyncio.Task[Any]]()

    def try_claim(self, request: ClaimRequest) -> list[Task]:
        """See `Backend.try_claim`."""
        self._line.check_open()
        return self._line.run(self._claim(request, 0.0))

    def claim(self, request: ClaimRequest, timeout_seconds: float | None) -> list[Task]:
        """See `Backend.claim`."""
        self._line.check_open()
        return self._line.run(self._claim(request, timeout_seconds))

    async def try_claim_async(self, request: ClaimRequest) -> list[Task]:
        """See `Backend.try_claim_async`."""
        self._line.check_open()
        return await self._line.run_async(self._claim(request, 0.0))

    async def claim_async(self, request: ClaimRequest, timeout_seconds: float | None) -> list[Task]:
        """See `Backend.claim_async`."""
        self._line.check_open()
        return await self._line.run_async(self._claim(request, timeout_seconds))

    async def _claim(self, request: ClaimRequest, timeout_seconds: float | None) -> list[Task]:
        """Claim in rounds, until there is something, or the time has passed."""
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        current = asyncio.current_task()
        assert current is not None  # noqa: S101 -- coroutines run in tasks
        self.running.add(current)
        try:
            while True:
                left = ROUND_SECONDS if end is None else max(0.0, end - time.monotonic())
                wait = min(left, ROUND_SECONDS)
                if taken := await self._round(wire.Claim(request, wait, secrets.token_hex(16))):
                    return taken
                if end is not None and time.monotonic() >= end:
                    return []
        except asyncio.CancelledError:
            self._line.check_open()
            raise
        finally:
            self.running.discard(current)

    async def _round(self, claim: wire.Claim) -> list[Task]:
        asking = asyncio.ensure_future(self._line.ask(wire.CLAIM, claim, claim.timeout_seconds))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            await self._leave(claim, asking)
            raise

    async def _leave(self, claim: wire.Claim, asking: asyncio.Future[list[Task]]) -> None:
        """End a claim, and give back its tasks so far. If that fails, its lease ends."""
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._line.ask(wire.LEAVE, wire.Leave(claim.ticket))
                taken = await asking
                if taken:
                    release = tuple(Renew(task.ref, 0.0, undo_claim=True) for task in taken)
                    await self._line.ask(wire.MODIFY, wire.Modify(claim.request.claimant, release))
        except (StickybusError, TimeoutError):
            pass
        finally:
            asking.cancel()
