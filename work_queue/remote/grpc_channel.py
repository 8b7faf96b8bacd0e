"""A channel of gRPC whose calls wait in their own threads."""

from __future__ import annotations

from typing import Any

import grpc

from work_queue.remote.address import Address
from work_queue.remote.grpc_transport import channel_to, error_of, metadata_of
from work_queue.remote.transport import UnsentError
from work_queue.wire.calls import method_of


class GrpcChannel:
    """See `BlockingTransport`."""

    def __init__(self, address: Address) -> None:
        self._channel = channel_to(address)
        self._metadata = metadata_of(address)
        self._methods = dict[str, Any]()

    def call(self, name: str, request: bytes, timeout_seconds: float) -> bytes:
        """See `BlockingTransport.call`.

        Such a call polls in this thread, and wakes no other. Signals are seen every 0.2 seconds.
        """
        try:
            answer: bytes = self._method(name)(
                request, timeout=timeout_seconds, metadata=self._metadata
            )
        except grpc.RpcError as error:
            raise error_of(error) from error
        except ValueError as error:
            raise UnsentError(str(error)) from error  # the channel was closed
        return answer

    def close(self) -> None:
        """See `BlockingTransport.close`."""
        self._channel.close()

    def _method(self, name: str) -> Any:
        method = self._methods.get(name)
        if method is None:
            method = self._methods[name] = self._channel.unary_unary(method_of(name))
        return method
