"""The caller of a gRPC call: who it is, and whether it is still there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import grpc

from work_queue.service.caller import Caller
from work_queue.service.protocol import PROTOCOL_KEY

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


def caller_of(context: Context) -> Caller:
    """Who calls."""
    scheme, _, token = (_metadata(context, "authorization") or "").partition(" ")
    names = context.auth_context().get("x509_common_name", ())
    return Caller(
        token=token.strip() or None if scheme.lower() == "bearer" else None,
        subject=next((name.decode(errors="replace") for name in names), None),
    )


def declared_protocol(context: Context) -> str | None:
    """Which protocol a caller declares."""
    return _metadata(context, PROTOCOL_KEY)


@asynccontextmanager
async def sent_or_undone(undo: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """A block that sends the only answer of a call, by `Context.write`.

    If it fails, because the caller has gone, its effects are undone. Nothing but sending tells
    that. So the method is one that streams to its caller, for whom one answer is the same.
    """
    try:
        yield
    except BaseException:
        await undo()
        raise


def _metadata(context: Context, key: str) -> str | None:
    for name, value in context.invocation_metadata() or ():
        if name == key:
            return value if isinstance(value, str) else value.decode(errors="replace")
    return None
