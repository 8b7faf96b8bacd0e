"""The gRPC server: where it listens, and what it serves besides its handlers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from queue_core.errors import ConfigurationError
from work_queue.service.listener import STOP_SECONDS
from work_queue.service.rpc.descriptors import POOL
from work_queue.service.rpc.health import Health
from work_queue.service.tls import Tls, read

RpcMethod: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Services: TypeAlias = "Mapping[str, Mapping[str, RpcMethod]]"
"""Services by their full names, each with its methods by name."""

MAX_MESSAGE_BYTES = 10_000_000
KEEPALIVE_SECONDS, KEEPALIVE_ANSWER_SECONDS = 30, 10
"""How soon a caller is missed whose machine or network is gone, while its claim waits."""
LEAST_PING_SECONDS = 5
"""How often a caller may ping us."""


class GrpcListener:
    """Serves at one address, with health and reflection. See `Listener`.

    Args:
        services: What it serves.
        host: Where it listens.
        port: 0: one that is free.
        tls: Its certificates. Default: no TLS.
        max_message_bytes: The longest message that a caller may send.
    """

    def __init__(
        self,
        services: Services,
        *,
        host: str,
        port: int,
        tls: Tls | None = None,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self._services = dict(services)
        self._host, self._port = f"[{host}]" if ":" in host else host, port
        self._tls = tls
        self._options = (
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.so_reuseport", 0),  # a port that is taken is an error
            ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
            ("grpc.http2.ping_timeout_ms", KEEPALIVE_ANSWER_SECONDS * 1000),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", LEAST_PING_SECONDS * 1000),
        )

    async def start(self) -> str:
        """See `Listener`."""
        self._server = grpc.aio.server(options=self._options)
        for name, methods in self._services.items():
            handler = grpc.method_handlers_generic_handler(name, dict(methods))
            self._server.add_generic_rpc_handlers([handler])
        self._add_health()
        port = self._listen()
        await self._server.start()
        return f"{'grpc' if self._tls is None else 'grpcs'}://{self._host}:{port}"

    async def stop(self) -> None:
        """See `Listener`."""
        self._health.stop()
        await self._server.stop(STOP_SECONDS)

    def _add_health(self) -> None:
        self._health = Health((health.OVERALL_HEALTH, *self._services))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (health.SERVICE_NAME, reflection.SERVICE_NAME, *self._services)
        # grpcio-reflection has no types.
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(  # type: ignore[no-untyped-call]
            reflection.aio.ReflectionServicer(names, pool=POOL), self._server
        )

    def _listen(self) -> int:
        address = f"{self._host}:{self._port}"
        try:
            if self._tls is None:
                return self._server.add_insecure_port(address)
            return self._server.add_secure_port(address, _credentials(self._tls))
        except RuntimeError as error:
            raise ConfigurationError(
                f"gRPC can't be served on {address}: {error}. Is the port taken, or a certificate "
                "invalid?",
                key="grpc_port",
                value=self._port,
            ) from error


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials(
        [(read(tls.key), read(tls.certificate))],
        root_certificates=None if tls.client_ca is None else read(tls.client_ca),
        require_client_auth=tls.client_ca is not None,
    )
