"""The awaitable twin of a call.

It runs the same code, on the connection that an asyncio session or connection holds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar

from queue_core.errors import InvalidConnectionError
from queue_core.runtime.callers import AsyncCallersConnection
from queue_core.runtime.own_threads import in_own_thread

T = TypeVar("T")


def is_asynchronous(given: object) -> TypeGuard[AsyncCallersConnection]:
    """Whether it is an AsyncSession or AsyncConnection.

    Their module is not imported here: it needs greenlet, which the base install does not have. A
    caller that holds one has it.
    """
    module = sys.modules.get("sqlalchemy.ext.asyncio")
    return module is not None and isinstance(given, module.AsyncSession | module.AsyncConnection)


async def awaited(call: Callable[[Any], T], connection: AsyncCallersConnection | None) -> T:
    """Run `call(connection)` without blocking the event loop.

    It runs in the way of `connection`, or in a thread of the library's own if there is none.

    Raises InvalidConnectionError for any other kind of connection.
    """
    if connection is None:
        return await in_own_thread(call, None)
    if is_asynchronous(connection):
        return await connection.run_sync(call)
    raise InvalidConnectionError(
        f"an awaitable call got a {type(connection).__name__}. Nothing was written. Pass an "
        "AsyncSession or an AsyncConnection, or make the call without _async."
    )
