"""The loop on which calls of a remote work queue run: none comes after its end or hangs there."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from queue_core.errors import LifecycleError
from tests.contract.harness import BOUND_SECONDS, eventually
from work_queue.remote.background import THREAD, Background


def loops() -> int:
    return sum(thread.name == THREAD for thread in threading.enumerate())


async def _number() -> int:
    return 1


async def _undo(_: int | None) -> None:
    raise AssertionError("nothing is undone")


def test_a_call_that_comes_during_the_end_is_refused_and_begins_no_other_loop() -> None:
    background, before = Background(), loops()
    assert asyncio.run(background.run_async(_number(), _undo)) == 1
    assert loops() == before + 1
    ending, goes_on = threading.Event(), threading.Event()

    async def last() -> None:
        ending.set()
        await asyncio.to_thread(goes_on.wait, BOUND_SECONDS)

    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(background.end, last)
        assert ending.wait(BOUND_SECONDS)
        with pytest.raises(LifecycleError):
            asyncio.run(background.run_async(_number(), _undo))
        goes_on.set()
        end.result(BOUND_SECONDS)
    with pytest.raises(LifecycleError):
        asyncio.run(background.run_async(_number(), _undo))
    eventually(lambda: loops() == before, "the loop's thread ends")


def test_the_last_call_sees_all_that_have_begun() -> None:
    background, begun = Background(), threading.Event()

    async def never() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def last() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for other in others:
            other.cancel()
        await asyncio.wait(others)

    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(asyncio.run, background.run_async(never(), _undo))
        assert begun.wait(BOUND_SECONDS)
        background.end(last)
        assert isinstance(waits.exception(BOUND_SECONDS), BaseException)


def test_a_result_that_meets_a_cancellation_on_its_way_is_undone() -> None:
    background, ended, undone = Background(), threading.Event(), list[int]()

    async def ends() -> int:
        ended.set()
        return 1

    async def undo(result: int) -> None:
        undone.append(result)

    async def last() -> None:
        pass

    async def run() -> None:
        running = asyncio.create_task(background.run_async(ends(), undo))
        await asyncio.sleep(0)
        assert ended.wait(BOUND_SECONDS)  # this loop is busy meanwhile
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert undone == [1]

    asyncio.run(run())
    background.end(last)
