"""Calls over gRPC."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc

from queue_core.errors import ConfigurationError, PayloadTooLargeError
from work_queue.remote.address import Address
from work_queue.remote.transport import LostError, StrangeError, UnsentError
from work_queue.wire.calls import method_of

UNSENT = ("failed to connect to all addresses", "DNS resolution failed")
"""How gRPC begins to say that it has no connection. All else it says of calls that were lost."""
LARGER = "larger than max"
"""What gRPC says of a request that is too long: "… message larger than max (5 vs. 4)"."""
OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    # Else the channel of a fork's child takes the connection of its parent's.
    ("grpc.use_local_subchannel_pool", 1),
)


class GrpcTransport:
    """See `Transport`."""

    def __init__(self, address: Address) -> None:
        # The channel of threads: those of event loops disturb one another if a process has several.
        self._channel = channel_to(address)
        self._metadata = metadata_of(address)

    async def call(self, name: str, request: bytes, timeout_seconds: float) -> bytes:
        """See `Transport.call`."""
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        method: Any = self._channel.unary_unary(method_of(name))
        call = method.future(request, timeout=timeout_seconds, metadata=self._metadata)
        call.add_done_callback(lambda _call: loop.call_soon_threadsafe(_set, ended))
        try:
            await ended
        except asyncio.CancelledError:
            call.cancel()
            raise
        if call.code() is grpc.StatusCode.OK:
            answer: bytes = call.result()
            return answer
        raise error_of(call)

    async def close(self) -> None:
        """See `Transport.close`."""
        self._channel.close()


def _set(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


def channel_to(address: Address) -> grpc.Channel:
    """A channel, which connects with its first call."""
    if address.encrypts:
        return grpc.secure_channel(address.authority, _tls(address), OPTIONS)
    return grpc.insecure_channel(address.authority, OPTIONS)


def metadata_of(address: Address) -> tuple[tuple[str, str], ...]:
    """What is sent with each call."""
    return () if address.token is None else (("authorization", f"Bearer {address.token}"),)


def error_of(call: Any) -> Exception:
    """The error of a call that has failed."""
    details = call.details() or call.code().name
    # A proxy that has too much to do says the same, and no size.
    if call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and LARGER in details:
        return PayloadTooLargeError(
            f"the service takes no request of this size: {details}. Nothing was written. Send "
            "less at once."
        )
    if call.code() is grpc.StatusCode.UNIMPLEMENTED:
        return StrangeError(details)
    return UnsentError(details) if details.startswith(UNSENT) else LostError(details)


def _tls(address: Address) -> grpc.ChannelCredentials:
    tls = address.tls
    return grpc.ssl_channel_credentials(
        _read(tls.ca_file), _read(tls.key_file), _read(tls.certificate_file)
    )


def _read(path: str | Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"tls: a file can't be used: {error}", key="tls") from error
