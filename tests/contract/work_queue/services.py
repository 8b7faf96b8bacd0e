"""Services in a thread of the tests' process, for work queues at an address."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from work_queue.service.calls import Calls
from work_queue.service.native.answers import Answers
from work_queue.service.native.grpc import services
from work_queue.service.native.http import routes
from work_queue.service.rpc.listener import GrpcListener
from work_queue.work_queue import WorkQueue

T = TypeVar("T")
MAX_REQUEST_BYTES = 20_000_000


class Services:
    """One server of each kind, which serves any number of work queues, each at its own address."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._listeners = list[GrpcListener]()
        self._apps = dict[str, ASGIApp]()
        # Said to be TCP: asyncio turns off Nagle's algorithm for no other.
        self._listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            self._app, interface="asgi3", log_level="error", lifespan="off", access_log=False
        )
        self._server = uvicorn.Server(config)
        self._serving = self._start(self._server.serve([self._listening]))

    def http(self, work: WorkQueue) -> str:
        """Serve a work queue over HTTP; returns its address."""
        name = secrets.token_hex(4)
        self._apps[name] = Starlette(
            routes=routes(Answers(Calls(work)), max_request_bytes=MAX_REQUEST_BYTES)
        )
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}/{name}"

    def grpc(self, work: WorkQueue) -> str:
        """Serve a work queue over gRPC; returns its address."""
        listener = GrpcListener(services(Answers(Calls(work))), host="127.0.0.1", port=0)
        self._listeners.append(listener)
        return self._start(listener.start()).result(10)

    def close(self) -> None:
        """Stop the servers."""
        self._server.should_exit = True
        self._serving.result(10)
        for listener in self._listeners:
            self._start(listener.stop()).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _start(self, call: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(call, self._loop)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        name, _, path = scope["path"].lstrip("/").partition("/")
        await self._apps[name]({**scope, "path": f"/{path}"}, receive, send)
