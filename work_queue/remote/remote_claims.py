"""Claims at a service: they wait in rounds, and leave nothing behind if nobody wants them."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from typing import Any

from queue_core.errors import StickybusError
from work_queue.document import DocSet
from work_queue.modification import Renew
from work_queue.remote.line import ANSWER_SECONDS, LEAVE_SECONDS, Line
from work_queue.remote.transport import BlockingTransport
from work_queue.requests import ClaimRequest, DocClaimRequest
from work_queue.task import Task
from work_queue.wire import calls as wire

ROUND_SECONDS = 20.0
"""How long one call of a claim waits: less than proxies let a connection idle."""


class RemoteClaims:
    """Claims of tasks over a line."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.running = set[asyncio.Task[Any]]()
        """Those that coroutines await."""
        self._waiting = dict[str, BlockingTransport]()
        """Those that threads wait for, by ticket."""

    def try_claim(self, request: ClaimRequest) -> list[Task]:
        """See `Backend.try_claim`."""
        return self.claim(request, 0.0)

    def claim(self, request: ClaimRequest, timeout_seconds: float | None) -> list[Task]:
        """See `Backend.claim`."""
        rounds = _Rounds(timeout_seconds)
        while True:
            taken = self._taken(rounds.claim(request))
            if taken or rounds.are_over():
                return taken

    def _taken(self, claim: wire.Claim) -> list[Task]:
        line = self._line
        try:
            with line.begun() as transport:
                taken = self._answer(claim, transport)
                if line.closed and taken:
                    with suppress(StickybusError):
                        line.call_on(transport, wire.MODIFY, _release(taken), LEAVE_SECONDS)
            line.check_open()
            return taken
        except StickybusError:
            line.check_open()
            raise
        except BaseException:  # until here nobody has seen what it took
            with suppress(StickybusError), line.begun() as transport:
                self._end(claim.ticket, transport, LEAVE_SECONDS)
            raise

    def _answer(self, claim: wire.Claim, transport: BlockingTransport) -> list[Task]:
        try:
            self._waiting[claim.ticket] = transport
            self._line.check_open()  # `leave` has not seen this one otherwise
            seconds = claim.timeout_seconds + ANSWER_SECONDS
            return self._line.call_on(transport, wire.CLAIM, claim, seconds)
        finally:
            self._waiting.pop(claim.ticket, None)

    def leave(self, transport: BlockingTransport) -> None:
        """End the claims that threads wait for on it. Each thread sees that the line was closed.

        After a fork those of the parent process wait on a transport of its own.
        """
        until = time.monotonic() + LEAVE_SECONDS
        with suppress(StickybusError):  # if one fails, all would
            for ticket, its in tuple(self._waiting.items()):
                left = until - time.monotonic()
                if its is transport and left > 0:
                    self._end(ticket, transport, left)

    def _end(self, ticket: str, transport: BlockingTransport, seconds: float) -> None:
        """Let the service release what a claim took, or takes. If that fails, its lease ends."""
        self._line.call_on(transport, wire.LEAVE, wire.Leave(ticket), seconds)

    async def try_claim_async(self, request: ClaimRequest) -> list[Task]:
        """See `Backend.try_claim_async`."""
        return await self.claim_async(request, 0.0)

    async def claim_async(self, request: ClaimRequest, timeout_seconds: float | None) -> list[Task]:
        """See `Backend.claim_async`."""
        self._line.check_open()
        return await self._line.run_async(self._claim(request, timeout_seconds), self._give_back)

    async def _claim(self, request: ClaimRequest, timeout_seconds: float | None) -> list[Task]:
        """Claim in rounds, until there is something, or the time has passed."""
        rounds, current = _Rounds(timeout_seconds), asyncio.current_task()
        assert current is not None  # noqa: S101 -- coroutines run in tasks
        self.running.add(current)
        try:
            while True:
                taken = await self._round(rounds.claim(request))
                if taken or rounds.are_over():
                    return taken
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
        """See `_end`; its connection is cut after that."""
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._line.ask(wire.LEAVE, wire.Leave(claim.ticket))
        except (StickybusError, TimeoutError):
            pass
        finally:
            asking.cancel()

    async def _give_back(self, taken: list[Task]) -> None:
        """Release what a claim took whose end met its cancellation."""
        with suppress(StickybusError, TimeoutError):  # its lease ends
            async with asyncio.timeout(LEAVE_SECONDS):
                if taken:
                    await self._line.ask(wire.MODIFY, _release(taken))

    async def claim_docs_async(self, request: DocClaimRequest) -> list[DocSet]:
        """See `Backend.claim_docs_async`."""
        self._line.check_open()
        return await self._line.run_async(self._claim_docs(request), self._release_docs)

    async def _claim_docs(self, request: DocClaimRequest) -> list[DocSet]:
        asking = asyncio.ensure_future(self._line.ask(wire.CLAIM_DOCS, request))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            with suppress(StickybusError, TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self._release_docs(await asking)
            raise

    async def _release_docs(self, sets: list[DocSet]) -> None:
        """Release doc sets that nobody has seen."""
        with suppress(StickybusError, TimeoutError):  # their lease ends
            async with asyncio.timeout(LEAVE_SECONDS):
                release = tuple(docs.release() for docs in sets)
                await self._line.ask(wire.MODIFY, wire.Modify(sets[0].claimant, release))


class _Rounds:
    """The calls of one claim, which together wait as long as it does."""

    def __init__(self, timeout_seconds: float | None) -> None:
        self._end = None if timeout_seconds is None else time.monotonic() + timeout_seconds

    def claim(self, request: ClaimRequest) -> wire.Claim:
        left = ROUND_SECONDS if self._end is None else max(0.0, self._end - time.monotonic())
        return wire.Claim(request, min(left, ROUND_SECONDS), secrets.token_hex(16))

    def are_over(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end


def _release(taken: list[Task]) -> wire.Modify:
    """No claim any more: nobody has seen these."""
    release = tuple(Renew(task.ref, 0.0, undo_claim=True, with_value=False) for task in taken)
    return wire.Modify(taken[0].claimant, release)
