"""The wait of a claim: in its thread, or as a coroutine that needs none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Self, TypeVar

from queue_core.errors import LifecycleError
from queue_core.runtime.clock import Clock
from queue_core.runtime.own_threads import in_own_thread
from queue_core.runtime.signal import Signal
from work_queue.requests import ClaimRequest
from work_queue.storage.claims import Claims
from work_queue.storage.looks import Busy, Look
from work_queue.storage.waiting import Waiter, WaitingRoom
from work_queue.task import Task

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.5
"""Between looks at tasks that are available, but locked: by a claim, or by a modification."""
SETTLE_SECONDS = 30.0
"""What giving back may take when a work queue is closed."""

T = TypeVar("T")


class Waits:
    """Claims that wait in a room.

    `tell` takes the queue of a task that was given back. It wakes who waits, here or elsewhere.
    """

    def __init__(
        self, claims: Claims, room: WaitingRoom, tell: Callable[[str], None], clock: Clock
    ) -> None:
        self._claims = claims
        self._room = room
        self._tell = tell
        self._clock = clock
        self._busy = Busy()

    def claim(self, request: ClaimRequest, timeout_seconds: float | None) -> list[Task]:
        """See `Backend.claim`."""
        signal = Signal()
        with self._wait(request, signal.set, timeout_seconds) as wait:
            while True:
                if wait.must_look() and (taken := wait.look()):
                    return taken
                seconds = wait.seconds()
                if seconds is None:
                    return []
                self._clock.wait(signal, seconds)

    async def claim_async(self, request: ClaimRequest, timeout_seconds: float | None) -> list[Task]:
        """See `Backend.claim_async`."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended, and the claim with it
                loop.call_soon_threadsafe(woken.set)

        with self._wait(request, wake, timeout_seconds) as wait:
            while True:
                if wait.must_look() and (taken := await self.seen(wait.look, self._give_back)):
                    return taken
                seconds = wait.seconds()
                if seconds is None:
                    return []
                # Not by wait_for: before Python 3.12 one that is just woken can't be cancelled.
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await woken.wait()
                woken.clear()

    async def try_claim_async(self, request: ClaimRequest) -> list[Task]:
        """See `Backend.try_claim_async`."""
        return await self.seen(lambda: self._claims.take(request), self._give_back)

    async def seen(self, take: Callable[[], list[T]], undo: Callable[[list[T]], None]) -> list[T]:
        """Claim in a thread. What nobody sees any more, after a cancellation, is undone."""
        look = Look(take)
        thread = asyncio.ensure_future(in_own_thread(self._run, look, undo))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            thread.add_done_callback(_retrieve)
            if unseen := look.abandon():
                # Not in the pool, where it would wait for other calls.
                threading.Thread(
                    target=self._undo, args=(unseen, undo), name="work_queue-give-back"
                ).start()
            raise

    def _run(self, look: Look[T], undo: Callable[[list[T]], None]) -> list[T]:
        """In a thread: look, unless nobody waits for it any more."""
        with self._busy:
            seen, unseen = look.run()
            if unseen:
                undo(unseen)
            return seen

    def _undo(self, unseen: list[T], undo: Callable[[list[T]], None]) -> None:
        with self._busy:  # a close waits for it
            undo(unseen)

    def _give_back(self, taken: list[Task]) -> None:
        self._claims.give_back(taken)
        self._tell(taken[0].queue)

    def settle(self) -> None:
        """Wait until looks that nobody sees have given back what they took."""
        self._busy.wait(SETTLE_SECONDS)

    def _wait(
        self, request: ClaimRequest, wake: Callable[[], None], timeout_seconds: float | None
    ) -> _Wait:
        return _Wait(
            self._claims,
            self._room,
            self._clock,
            request,
            wake=wake,
            timeout_seconds=timeout_seconds,
        )


class _Wait:
    """One claim that waits, from its first look on."""

    def __init__(
        self,
        claims: Claims,
        room: WaitingRoom,
        clock: Clock,
        request: ClaimRequest,
        *,
        wake: Callable[[], None],
        timeout_seconds: float | None,
    ) -> None:
        self._claims, self._room, self._clock = claims, room, clock
        self._request = request
        self._waiter = Waiter(request.queues, wake)
        self._pause = FIRST_PAUSE_SECONDS
        self._deadline = None if timeout_seconds is None else clock.monotonic() + timeout_seconds

    def __enter__(self) -> Self:
        self._room.enter(self._waiter)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._room.leave(self._waiter)

    def must_look(self) -> bool:
        """Whether there may be something to claim now."""
        if self._room.closed:
            raise LifecycleError("the work queue was closed. Nothing was claimed.")
        return self._room.begin_look(self._waiter)

    def look(self) -> list[Task]:
        """Claim, or note when the next look is due."""
        queues = self._request.queues
        taken, arrivals = self._claims.look(self._request)
        if taken:
            return taken
        now = self._clock.now()
        locked = [queue for queue, date in arrivals.items() if date <= now]
        if locked:
            again = now + timedelta(seconds=self._pause)
            arrivals |= dict.fromkeys(locked, again)
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS) if locked else FIRST_PAUSE_SECONDS
        self._room.expect(arrivals, queues)
        return []

    def seconds(self) -> float | None:
        """How long to wait at most before the next turn; None: no longer."""
        seconds = self._room.seconds_to_look(self._waiter)
        if self._deadline is None:
            return seconds
        left = self._deadline - self._clock.monotonic()
        return None if left <= 0 else min(seconds, left)


def _retrieve(thread: asyncio.Future[list[T]]) -> None:
    """Let nobody complain that an error was not retrieved: who would have got it has gone."""
    if not thread.cancelled():
        thread.exception()
