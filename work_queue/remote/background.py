"""An event loop in a thread of its own. It runs the claims that coroutines await.

So one set of connections serves all loops, a wait needs no thread, and any wait can be cancelled.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from queue_core.errors import LifecycleError
from work_queue.remote.anew import Anew

THREAD = "work_queue-client"

T = TypeVar("T")


class Background(Anew):
    """Begins with its first call, and anew in a child process of a fork. Its end is for good.

    The lock is held while a call is put on the loop: none may come after the last one.
    """

    def __init__(self) -> None:
        super().__init__()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = False

    async def run_async(
        self, call: Coroutine[Any, Any, T], undo: Callable[[T], Coroutine[Any, Any, None]]
    ) -> T:
        """Run it, and await it. A cancellation waits until the call has ended, or is undone.

        Raises LifecycleError after the end.
        """
        running = _Running(call)
        with self._lock:
            loop = self._loop_here(call)
            loop.call_soon_threadsafe(running.begin, loop)
        waiting = asyncio.wrap_future(running.ended)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            ends: list[asyncio.Future[Any]] = [waiting]
            with self._lock:
                if not self._ended:  # else the last call ends it
                    leaving = asyncio.run_coroutine_threadsafe(running.leave(undo), loop)
                    ends.append(asyncio.wrap_future(leaving))
            await asyncio.shield(asyncio.gather(*ends, return_exceptions=True))
            raise

    def end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a last call, which ends all that have begun, and end the loop, if it runs here."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            if self._loop is None or not self._has_begun:
                return
            loop = self._loop
            future = asyncio.run_coroutine_threadsafe(last(), loop)
        try:
            future.result()
        finally:
            loop.call_soon_threadsafe(loop.stop)

    def _loop_here(self, call: Coroutine[Any, Any, Any]) -> asyncio.AbstractEventLoop:
        """The loop of this process, which runs, for a call."""
        if self._ended:
            call.close()
            raise LifecycleError("the work queue was closed. Nothing was done.")
        if self._loop is None or not self._has_begun:
            loop = asyncio.new_event_loop()
            threading.Thread(target=_turn, args=(loop,), name=THREAD, daemon=True).start()
            self._loop, self._has_begun = loop, True
        return self._loop


class _Running:
    """A coroutine on another loop, and its end."""

    _task: asyncio.Task[Any]
    """Since it has begun. Whatever else is asked of that loop comes later."""

    def __init__(self, call: Coroutine[Any, Any, Any]) -> None:
        self._call = call
        self.ended = Future[Any]()

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._task = loop.create_task(self._call)
        self._task.add_done_callback(self._end)

    async def leave(self, undo: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        """Cancel it, or undo it: its result may be on its way to who wants it no more."""
        task = self._task
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and task.exception() is None:
            await undo(task.result())

    def _end(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self.ended.cancel()
        elif (error := task.exception()) is not None:
            self.ended.set_exception(error)
        else:
            self.ended.set_result(task.result())


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
