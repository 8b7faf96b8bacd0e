"""The awaitable twin of a call.

It runs the same code, on the connection that an asyncio session or connection holds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeGuard, TypeVar

from sqlalchemy.util import concurrency

from queue_core.errors import InvalidConnectionError
from queue_core.runtime.callers import AsyncCallersConnection
from queue_core.runtime.own_threads import in_own_thread, in_quick_thread
from queue_core.runtime.shown import a_kind

T = TypeVar("T")

_in_the_way = ContextVar("stickybus_in_the_way", default=False)
"""Whether a call is made in the way of a coroutine's connection."""


def is_asynchronous(given: object) -> TypeGuard[AsyncCallersConnection]:
    """Whether it is an AsyncSession or AsyncConnection.

    Their module is not imported here: it needs greenlet, which the base install does not have. A
    caller that holds one has it.
    """
    module = sys.modules.get("sqlalchemy.ext.asyncio")
    return module is not None and isinstance(given, module.AsyncSession | module.AsyncConnection)


def off_the_loop(call: Callable[[], T]) -> T:
    """Run a blocking call, and return its answer.

    Within `awaited`, in the way of a connection, it runs in a thread of the library's own. The
    event loop goes on meanwhile, and so does who holds a lock that the call waits for.
    """
    # Its thread has the same context, and is in no coroutine's way.
    if not _in_the_way.get() or not concurrency.in_greenlet():
        return call()
    return concurrency.await_only(in_quick_thread(call))


async def awaited(call: Callable[[Any], T], connection: AsyncCallersConnection | None) -> T:
    """Run `call(connection)` without blocking the event loop.

    It runs in the way of `connection`, or in a thread of the library's own if there is none.

    Raises InvalidConnectionError for any other kind of connection.
    """
    if connection is None:
        return await in_own_thread(call, None)
    if is_asynchronous(connection):
        token = _in_the_way.set(True)
        try:
            return await connection.run_sync(call)
        finally:
            _in_the_way.reset(token)
    raise InvalidConnectionError(
        f"an awaitable call got {a_kind(type(connection))}. Nothing was written. Pass an "
        "AsyncSession or an AsyncConnection, or make the call without _async."
    )
