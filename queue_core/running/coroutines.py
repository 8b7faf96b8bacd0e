"""The event loop on which coroutine handlers run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

from queue_core.runtime.lock import Lock
from queue_core.runtime.log import get_logger

log = get_logger(__name__)


class Coroutines:
    """One event loop in a thread of its own, made by the first call. `name` is the thread's."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = Lock()
        self.over = False
        """It was stopped: its coroutines are cancelled, and nothing more begins."""

    def reopen(self) -> None:
        """Let coroutines run again."""
        self.over = False

    def call(self, begin: Callable[[], Awaitable[object]]) -> object:
        """Await the result of `begin` on the loop, and return its value.

        Raises its error, and CancelledError after a stop.
        """
        returned, error = asyncio.run_coroutine_threadsafe(
            _awaited(begin), self._running()
        ).result()
        if error is not None:
            raise error
        return returned

    def stop(self) -> None:
        """Cancel all that run, and wait for none."""
        self.over = True
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._loop = None

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self.over:
                raise asyncio.CancelledError
            if self._loop is None:
                runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
                loop = runner.get_loop()  # made here, not by the first caller
                threading.Thread(
                    target=self._run, args=(runner,), name=self._name, daemon=True
                ).start()
                self._loop = loop
            return self._loop

    def _run(self, runner: asyncio.Runner) -> None:
        # At its end handlers that a stop has not waited for are cancelled: they unwind, and free
        # the threads that wait.
        with runner:
            loop, over = runner.get_loop(), False
            while not over:
                try:
                    loop.run_forever()  # until a stop; handlers may stop it, too
                # SystemExit, by a task that a handler has left behind.
                except BaseException as error:
                    log.exception("task_failed", error_type=type(error).__name__)
                with self._lock:
                    over = self._loop is not loop


async def _awaited(begin: Callable[[], Awaitable[object]]) -> tuple[object, BaseException | None]:
    try:
        return await begin(), None
    except BaseException as error:  # noqa: BLE001 -- SystemExit would end the event loop
        return None, error
