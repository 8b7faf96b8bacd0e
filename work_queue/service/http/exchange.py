"""One request: who sends it, what it holds, and whether the caller still waits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from work_queue.service.caller import Caller, token_of

T = TypeVar("T")


class CallerGoneError(Exception):
    """The caller has closed its connection; nobody reads an answer."""


def caller_of(request: Request) -> Caller:
    """Who sends a request."""
    return Caller(
        token_of(request.headers.get("authorization")), getattr(request.state, "subject", None)
    )


async def body_of(request: Request, cap_bytes: int) -> bytes:
    """The body of a request.

    Raises:
        HTTPException: 413, it is longer.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > cap_bytes:
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the request has more than {cap_bytes:,} bytes. Nothing was written. Send less, "
                "or have the service's --max-request-bytes raised.",
            )
    return bytes(body)


async def while_there(request: Request, call: Coroutine[Any, Any, T]) -> T:
    """Await a call as long as the caller waits; once its body has been read.

    The call runs in the task of the request, which is cancelled when the caller has gone: what the
    call has just claimed can't get lost between two tasks.

    Raises:
        CallerGoneError: The caller has gone, and the call was cancelled.
    """
    waiting = asyncio.current_task()
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone = True
        if waiting is not None:
            waiting.cancel()

    watching = asyncio.ensure_future(watch())
    try:
        return await call
    except asyncio.CancelledError:
        if gone and waiting is not None and waiting.uncancel() == 0:
            raise CallerGoneError from None
        raise
    finally:
        watching.cancel()
