"""A gRPC server: where it listens, and what it serves besides its handlers."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from work_queue.service.rpc.descriptors import POOL

KEEPALIVE_SECONDS, KEEPALIVE_ANSWER_SECONDS = 30, 10
"""How soon a caller is missed whose machine or network is gone, while it waits for a task."""
LEAST_PING_SECONDS = 5
"""How often a caller may ping us."""


class RpcServer:
    """Serves handlers at one address, with health and reflection. Made for one event loop.

    Args:
        handlers: What it serves. Those of other services may be added.
        services: Their full names, for health and reflection.
        address: Host and port. Port 0: one that is free.
        credentials: The certificates of TLS. Default: no TLS.
        max_message_bytes: The longest message that a caller may send.
    """

    def __init__(
        self,
        handlers: Sequence[grpc.GenericRpcHandler],
        services: Sequence[str],
        *,
        address: str,
        credentials: grpc.ServerCredentials | None = None,
        max_message_bytes: int,
    ) -> None:
        self._handlers = tuple(handlers)
        self._services = tuple(services)
        self._address = address
        self._credentials = credentials
        self._options = (
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.so_reuseport", 0),  # a port that is taken is an error
            ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_ANSWER_SECONDS * 1000),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", LEAST_PING_SECONDS * 1000),
        )

    async def start(self) -> int:
        """Listen.

        Returns:
            The port.

        Raises:
            OSError: The address can't be listened at.
        """
        server = self._server = grpc.aio.server(options=self._options)
        server.add_generic_rpc_handlers(self._handlers)
        self._health = health.aio.HealthServicer()
        names = (health.SERVICE_NAME, reflection.SERVICE_NAME, *self._services)
        for name in (health.OVERALL_HEALTH, *self._services):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(  # type: ignore[no-untyped-call]
            reflection.aio.ReflectionServicer(names, pool=POOL), server
        )
        try:
            port = (
                server.add_insecure_port(self._address)
                if self._credentials is None
                else server.add_secure_port(self._address, self._credentials)
            )
        except RuntimeError as error:
            raise OSError(f"can't listen at {self._address}: {error}") from error
        await server.start()
        return port

    async def stop(self, grace_seconds: float) -> None:
        """End: take no more calls, let running ones end for a while, and cancel those that wait."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_seconds)
