"""Opening a work queue at a service's address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from queue_core.errors import ConfigurationError
from queue_core.runtime.arguments import is_number, not_allowed
from work_queue.backend import Backend
from work_queue.remote.address import Address
from work_queue.remote.transport import BlockingTransport, Transport


def open_remote(address: Address, *, max_value_bytes: int) -> Backend:
    """Open it, and see that it answers.

    Raises ConfigurationError, and DatabaseUnreachableError if it does not answer.
    """
    if not is_number(max_value_bytes) or max_value_bytes < 1:
        raise not_allowed("max_value_bytes", max_value_bytes, "1 or more")
    # Loaded here: whoever has a database needs no wire.
    from work_queue.remote.remote_backend import RemoteBackend

    return RemoteBackend(address, _connect, _connect_blocking, max_value_bytes=max_value_bytes)


def _connect(address: Address) -> Transport:
    with _extra(address):
        if address.scheme.startswith("grpc"):
            from work_queue.remote.grpc_transport import GrpcTransport

            return GrpcTransport(address)
        from work_queue.remote.http_transport import HttpTransport

        return HttpTransport(address)


def _connect_blocking(address: Address) -> BlockingTransport:
    with _extra(address):
        if address.scheme.startswith("grpc"):
            from work_queue.remote.grpc_channel import GrpcChannel

            return GrpcChannel(address)
        from work_queue.remote.http_connections import HttpConnections

        return HttpConnections(address)


@contextmanager
def _extra(address: Address) -> Iterator[None]:
    """Name the extra to install if a module is missing: the base has no client."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{address.scheme}:// needs {error.name}. Install it: pip install 'stickybus[client]'.",
            key="database",
        ) from error
