"""Threads of the library's own, for the blocking calls of coroutines."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

from queue_core.runtime.own_threads import THREADS, in_own_thread, in_quick_thread
from tests.contract.harness import eventually

STATE = ContextVar[str]("STATE")


def _seen(first: int, *, second: int) -> tuple[int, str, str]:
    return first + second, STATE.get(), threading.current_thread().name


def test_a_call_sees_its_arguments_and_its_coroutines_context() -> None:
    STATE.set("seen")
    result, state, name = asyncio.run(in_own_thread(_seen, 1, second=2))
    assert (result, state) == (3, "seen")
    assert name.startswith(THREADS)


def test_its_threads_end_with_their_loop() -> None:
    thread = asyncio.run(in_own_thread(threading.current_thread))
    eventually(lambda: not thread.is_alive(), "the end of the thread")


def test_calls_that_wait_keep_no_thread_from_one_that_they_wait_for() -> None:
    freed = threading.Event()

    async def main() -> list[bool]:
        waiting = [asyncio.create_task(in_own_thread(freed.wait, 20.0)) for _ in range(99)]
        await in_quick_thread(freed.set)
        return await asyncio.gather(*waiting)

    assert all(asyncio.run(main()))
