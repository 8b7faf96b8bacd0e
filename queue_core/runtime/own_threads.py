"""Threads of the library's own, for the blocking calls of coroutines.

Applications block the threads of asyncio's default executor, by asyncio.to_thread. The library's
calls would wait behind theirs, and leases would end meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary

THREADS = "stickybus"
"""With this their names begin."""

P = ParamSpec("P")
T = TypeVar("T")

_pools = WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor]()
"""One for each event loop, with which it ends. A forked child has loops of its own."""
_quick = WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor]()
"""The same, for calls that wait for no other transaction."""


def let_have(threads: int | None, name: str = THREADS) -> ThreadPoolExecutor:
    """Give the running loop a pool for its calls, and return it.

    Args:
        threads: The number of its threads. None: as many as the loop's default executor has.
        name: The names of its threads begin with it.
    """
    pool = ThreadPoolExecutor(threads, name)
    _pools[asyncio.get_running_loop()] = pool
    return pool


async def in_own_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Await a short blocking call, as asyncio.to_thread does, in a thread of the library's own.

    What waits for a handler, or for an entry's end, has no place here: it would keep others out.

    Args:
        call: The function. It sees the coroutine's context variables.
        args: Its arguments.
        kwargs: Its arguments by name.

    Returns:
        What it returns.
    """
    pool = _pools.get(asyncio.get_running_loop()) or let_have(None)
    return await _in(pool, partial(call, *args, **kwargs))


async def in_quick_thread(call: Callable[[], T]) -> T:
    """As `in_own_thread`, for a call that waits for no other transaction.

    Those that wait may wait for the very transaction that makes this call: they keep no thread from
    it.
    """
    loop = asyncio.get_running_loop()
    if loop not in _quick:
        _quick[loop] = ThreadPoolExecutor(None, f"{THREADS}-quick")
    return await _in(_quick[loop], call)


async def _in(pool: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    run = contextvars.copy_context().run
    return await asyncio.get_running_loop().run_in_executor(pool, run, call)
