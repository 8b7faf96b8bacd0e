"""The health service of gRPC: what is served is healthy until the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from work_queue.service.rpc.callers import Context

_Status = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):
    """Answers who asks once, and who watches. A stop ends all watches, so that it waits for none.

    Args:
        services: The full names of what is served; an empty one: the server.
    """

    def __init__(self, services: Collection[str]) -> None:
        self._services = services
        self._stopping = asyncio.Event()

    async def Check(self, request: Any, context: Context) -> Any:  # noqa: N802 -- gRPC's name
        """Answer how a service is."""
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return self._answer(request)

    async def Watch(self, request: Any, context: Context) -> None:  # noqa: N802 -- gRPC's name
        """Send how a service is, now and at the stop."""
        await context.write(self._answer(request))
        await self._stopping.wait()
        await context.write(self._answer(request))

    def stop(self) -> None:
        """Be healthy no more."""
        self._stopping.set()

    def _answer(self, request: Any) -> Any:
        if request.service not in self._services:
            return _Status(status=_Status.SERVICE_UNKNOWN)
        stops = self._stopping.is_set()
        return _Status(status=_Status.NOT_SERVING if stops else _Status.SERVING)
