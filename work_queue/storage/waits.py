"""How a claim waits: in its thread, or as a coroutine that needs none."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from queue_core.errors import LifecycleError
from queue_core.runtime.clock import Clock
from queue_core.runtime.signal import Signal
from work_queue.requests import ClaimRequest
from work_queue.storage.claims import Claims
from work_queue.storage.waiting import Waiter, WaitingRoom
from work_queue.task import Task

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.5
"""Between looks at tasks that are available, but locked by others: a claim, or a modification."""


class Waits:
    """Claims that wait in a room."""

    def __init__(self, claims: Claims, room: WaitingRoom, clock: Clock) -> None:
        self._claims = claims
        self._room = room
        self._clock = clock

    def claim(self, request: ClaimRequest, timeout_seconds: float | None) -> list[Task]:
        """See `Backend.claim`."""
        signal = Signal()
        waiting = _Waiting(self._claims, self._room, self._clock, request, Waiter(request.queues, signal.set), timeout_seconds)
        with waiting:
            while True:
                if waiting.must_look() and (taken := waiting.look()):
                    return taken
                seconds = waiting.seconds()
                if seconds is None:
                    return []
                self._clock.wait(signal, seconds)

    async def claim_async(
        self, request: ClaimRequest, timeout_seconds: float | None
    ) -> list[Task]:
        """See `Backend.claim_async`."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(woken.set)

        waiting = _Waiting(self._claims, self._room, self._clock, request, Waiter(request.queues, wake), timeout_seconds)
        with waiting:
            while True:
                woken.clear()
                if waiting.must_look() and (taken := await self.seen(waiting.look)):
                    return taken
                seconds = waiting.seconds()
                if seconds is None:
                    return []
                try:
                    await asyncio.wait_for(woken.wait(), seconds)
                except TimeoutError:
                    pass
'''
