"""The awaitable twin of a call: the same code, on the connection that an asyncio session or connection holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from queue_core.errors import InvalidConnectionError

T = TypeVar("T")

Asynchronous = AsyncSession | AsyncConnection


async def awaited(call: Callable[[Any], T], connection: Asynchronous | None) -> T:
    """Run `call(connection)` without blocking the event loop: in `connection`'s own way, or in a thread if it is None.

    Raises InvalidConnectionError for any other kind of connection.
    """
    if connection is None:
        return await asyncio.to_thread(call, None)
    if isinstance(connection, AsyncSession | AsyncConnection):
        return await connection.run_sync(call)
    raise InvalidConnectionError(
        f"an awaitable call got a {type(connection).__name__}. Nothing was written. Pass an AsyncSession or an "
        "AsyncConnection, or make the call without _async."
    )
