"""The claims of a worker, while it runs."""

from __future__ import annotations

import asyncio
import math
import random
import secrets
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from sqlalchemy.exc import DBAPIError

from queue_core.runtime.log import get_logger
from sql.tables import CLAIMANT_BYTES
from work_queue.task import Task
from work_queue.work_queue import WorkQueue
from work_queue.workers.lease import UNREACHED
from work_queue.workers.options import Options
from work_queue.workers.requests import StopWorker
from work_queue.workers.run import Run
from work_queue.workers.threads import ExitedError

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0
"""Between claims that the database does not answer."""
FIRST_LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.05, 1.0
"""Between claims where nothing can be claimed yet, but may be soon."""
RANDOM_BYTES = 8
"""In the name by which a handler's tasks are claimed, as hexadecimal digits."""
NAME_BYTES = CLAIMANT_BYTES - len("#") - 2 * RANDOM_BYTES
"""Of a worker's own name at most: those names begin with it, so that rights can name it."""

log = get_logger(__name__)


class Loop:
    """One run of a worker: as many claims at a time as it runs handlers."""

    def __init__(
        self, work: WorkQueue, options: Options, *, until_empty: bool, limit: int | None
    ) -> None:
        self._work = work
        self._options = options
        self._until_empty = until_empty
        self._left = limit
        """How many tasks may still be claimed; None: any number."""
        self._loop = asyncio.get_running_loop()
        self._claims = set[asyncio.Future[Any]]()
        self._stopping = False
        self._cut = self._loop.create_future()
        self._busy = options.concurrency
        """Slots that have neither ended nor found nothing to claim."""
        self._looking = asyncio.Lock()
        """Held by the one slot that looks again for all that have found nothing."""
        self._run_ended = asyncio.Event()
        self._all_back = -math.inf
        """When all tasks are back that were put off, as time.monotonic() tells."""

    async def turn(self) -> None:
        """Claim and run until there is a reason to stop; raises what is fatal."""
        slots = [asyncio.ensure_future(self._slot()) for _ in range(self._options.concurrency)]
        try:
            await asyncio.wait(slots, return_when=asyncio.FIRST_EXCEPTION)
            self._stop(self._options.grace_seconds)
            await asyncio.wait(slots)
        finally:
            for slot in slots:
                slot.cancel()
            await asyncio.gather(*slots, return_exceptions=True)
        try:
            for slot in slots:
                slot.result()
        except ExitedError as error:
            raise error.exit from None

    def stop_soon(self, timeout_seconds: float | None) -> None:
        """Stop; from any thread."""
        self._loop.call_soon_threadsafe(self._stop, timeout_seconds)

    def _stop(self, timeout_seconds: float | None) -> None:
        self._stopping = True
        for claim in self._claims:
            claim.cancel()
        if timeout_seconds is not None:
            self._loop.call_later(timeout_seconds, self._cut_off)

    def _cut_off(self) -> None:
        if not self._cut.done():
            self._cut.set_result(None)

    async def _slot(self) -> None:
        claimant = f"{self._work.claimant}#{secrets.token_hex(RANDOM_BYTES)}"
        try:
            while (task := await self._claimed(claimant)) is not None:
                run = Run(self._work, self._options, task, self._cut)
                try:
                    await run.pass_through()
                except StopWorker:
                    self._stop(None)
                finally:
                    self._run_ended.set()
                if run.back is not None:
                    self._all_back = max(self._all_back, run.back)
                    if self._left is not None:
                        self._left += 1  # this slot's next claim takes it
        finally:
            self._busy -= 1

    async def _claimed(self, claimant: str) -> Task | None:
        """The next task; None: there is none, or the worker stops."""
        if self._stopping or self._left == 0:
            return None
        if self._left is not None:
            self._left -= 1
        task = await self._until_stop(self._claim(claimant))
        if task is None and self._left is not None:
            self._left += 1
        return task

    async def _until_stop(self, claim: Coroutine[Any, Any, Task | None]) -> Task | None:
        claiming = asyncio.ensure_future(claim)
        self._claims.add(claiming)
        try:
            return await claiming
        except asyncio.CancelledError:
            if not self._stopping or self._is_cancelled():
                raise
            return None
        finally:
            self._claims.discard(claiming)

    @staticmethod
    def _is_cancelled() -> bool:
        """Whether it is the slot that was cancelled, not its claim alone."""
        current = asyncio.current_task()
        return current is not None and current.cancelling() > 0

    async def _claim(self, claimant: str) -> Task | None:
        claim = self._claim_until_empty if self._until_empty else self._work.claim_async
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return await claim(
                    *self._options.queues,
                    lease_seconds=self._options.lease_seconds,
                    claimant=claimant,
                )
            except (DBAPIError, *UNREACHED) as error:
                log.warning("claim_failed", error=type(error).__name__, pause=pause)
            await asyncio.sleep(random.uniform(0, pause))  # noqa: S311 -- spreads them
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _claim_until_empty(self, *queues: str, **options: Any) -> Task | None:
        """A task, unless none is available, and none can come from this worker's own runs."""
        task = await self._work.try_claim_async(*queues, **options)
        if task is not None:
            return task
        self._busy -= 1
        try:
            async with self._looking:
                pause = FIRST_LOOK_SECONDS
                while True:
                    may_come = self._busy or time.monotonic() < self._all_back
                    task = await self._work.try_claim_async(*queues, **options)
                    if task is not None:
                        return task
                    if not (may_come or await self._is_available(queues)):
                        self._stop(None)  # the others that wait have nothing to look for
                        return None
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._run_ended.wait(), pause)
                    self._run_ended.clear()
                    pause = min(2 * pause, LONGEST_LOOK_SECONDS)
        finally:
            self._busy += 1

    async def _is_available(self, queues: tuple[str, ...]) -> bool:
        """Whether a task is there that can't be claimed: it is locked, or a limit is reached."""
        return any(queue.available for queue in await self._work.queue_stats_async(*queues))
