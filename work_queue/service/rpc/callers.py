"""Who calls, as the metadata and the certificate of a gRPC call tell."""

from __future__ import annotations

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


def _metadata(context: Context, key: str) -> str | None:
    for name, value in context.invocation_metadata() or ():
        if name == key:
            return value if isinstance(value, str) else value.decode(errors="replace")
    return None
