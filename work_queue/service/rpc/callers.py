"""Who calls, as the metadata and the certificate of a gRPC call tell."""

from __future__ import annotations

from typing import Any

import grpc

from work_queue.service.caller import Caller

PROTOCOL = "entroq-protocol"
"""The metadata that tells which protocol a caller speaks. Default: the first."""

Context = grpc.aio.ServicerContext[Any, Any]


def caller_of(context: Context) -> Caller:
    """Who calls."""
    scheme, _, token = _metadata(context, "authorization").partition(" ")
    names = context.auth_context().get("x509_common_name", ())
    return Caller(
        token=token.strip() or None if scheme.lower() == "bearer" else None,
        subject=next((name.decode(errors="replace") for name in names), None),
    )


def protocol_of(context: Context) -> str:
    """Which protocol a caller speaks."""
    return _metadata(context, PROTOCOL) or "1"


def _metadata(context: Context, key: str) -> str:
    for name, value in context.invocation_metadata() or ():
        if name == key:
            return value if isinstance(value, str) else value.decode(errors="replace")
    return ""
