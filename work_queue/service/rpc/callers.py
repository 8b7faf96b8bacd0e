"""The caller of a gRPC call: who it is, and whether it is still there."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import grpc

from work_queue.service.caller import Caller, token_of
from work_queue.service.protocol import PROTOCOL_KEY

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_PART = re.compile(rb"(?:\\.|[^,+\\])+", re.DOTALL)
"""A part of a certificate's subject, as RFC 2253 writes it."""


def caller_of(context: Context) -> Caller:
    """Who calls."""
    return Caller(token_of(_metadata(context, "authorization")), _subject(context))


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


def _subject(context: Context) -> str | None:
    """The only common name of a certificate. gRPC names the first; the subject has all."""
    facts = context.auth_context()
    parts = [part for one in facts.get("x509_subject", ()) for part in _PART.findall(one)]
    if sum(part.startswith(b"CN=") for part in parts) != 1:
        return None
    return next((name.decode(errors="replace") for name in facts["x509_common_name"]), None)


def _metadata(context: Context, key: str) -> str | None:
    for name, value in context.invocation_metadata() or ():
        if name == key:
            return value if isinstance(value, str) else value.decode(errors="replace")
    return None
