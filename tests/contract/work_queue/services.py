"""Services in a thread of the tests' process, for work queues at an address."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.contract.harness import BOUND_SECONDS
from tests.contract.service.certificates import Certificates
from work_queue.service.authoriser import Authoriser
from work_queue.service.calls import Calls
from work_queue.service.http.server import HttpListener
from work_queue.service.listener import Listener
from work_queue.service.native.answers import Answers
from work_queue.service.native.grpc import services
from work_queue.service.native.http import routes
from work_queue.service.rpc.listener import GrpcListener
from work_queue.service.tls import Tls
from work_queue.work_queue import WorkQueue

T = TypeVar("T")
HOST = "127.0.0.1"
MAX_REQUEST_BYTES = 20_000_000


class Services:
    """Serves any number of work queues, each at its own address."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._listeners = list[Listener]()
        self._apps = dict[str, ASGIApp]()
        # Said to be TCP: asyncio turns off Nagle's algorithm for no other.
        self._listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._listening.bind((HOST, 0))
        config = uvicorn.Config(
            self._app, interface="asgi3", log_level="critical", lifespan="off", access_log=False
        )
        self._server = uvicorn.Server(config)
        self._serving = self._start(self._server.serve([self._listening]))

    def http(
        self,
        work: WorkQueue,
        authoriser: Authoriser | None = None,
        *,
        max_request_bytes: int = MAX_REQUEST_BYTES,
    ) -> str:
        """Serve a work queue over HTTP; returns its address.

        All are served by one server, which is faster to start than one for each.
        """
        answers = Answers(Calls(work, authoriser))
        return self._mounted(Starlette(routes=routes(answers, max_request_bytes=max_request_bytes)))

    def grpc(
        self,
        work: WorkQueue,
        authoriser: Authoriser | None = None,
        *,
        max_request_bytes: int = MAX_REQUEST_BYTES,
    ) -> str:
        """Serve a work queue over gRPC; returns its address."""
        return self._listens(
            GrpcListener(
                services(Answers(Calls(work, authoriser))),
                host=HOST,
                port=0,
                max_message_bytes=max_request_bytes,
            )
        )

    def encrypted(self, kind: str, work: WorkQueue, signed: Certificates) -> str:
        """Serve a work queue with certificates, to clients that have one; returns its address."""
        tls = Tls(*signed.of("server"), signed.authority)
        calls = Calls(work)
        if kind == "grpc":
            return self._listens(
                GrpcListener(
                    services(Answers(calls)),
                    host=HOST,
                    port=0,
                    tls=tls,
                    max_message_bytes=MAX_REQUEST_BYTES,
                )
            )
        own = routes(Answers(calls), max_request_bytes=MAX_REQUEST_BYTES)
        return self._listens(HttpListener(calls, host=HOST, tls=tls, routes=own))

    def nothing(self, kind: str) -> str:
        """The address of a server without a work queue."""
        if kind == "grpc":
            return self._listens(
                GrpcListener({}, host=HOST, port=0, max_message_bytes=MAX_REQUEST_BYTES)
            )
        return self._mounted(Starlette())

    @contextmanager
    def cut_off(self, kind: str) -> Iterator[str]:
        """The address of what hangs up on all who speak to it."""

        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.close()

        listening = self._start(asyncio.start_server(hang_up, HOST, 0)).result(BOUND_SECONDS)
        yield f"{kind}://{HOST}:{listening.sockets[0].getsockname()[1]}"
        self._loop.call_soon_threadsafe(listening.close)

    def close(self) -> None:
        """Stop all servers."""
        self._server.should_exit = True
        self._serving.result(BOUND_SECONDS)
        for listener in self._listeners:
            self._start(listener.stop()).result(BOUND_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _mounted(self, app: ASGIApp) -> str:
        name = secrets.token_hex(4)
        self._apps[name] = app
        return f"http://{HOST}:{self._listening.getsockname()[1]}/{name}"

    def _listens(self, listener: Listener) -> str:
        self._listeners.append(listener)
        return self._start(listener.start()).result(BOUND_SECONDS)

    def _start(self, call: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(call, self._loop)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        name, _, path = scope["path"].lstrip("/").partition("/")
        await self._apps[name]({**scope, "path": f"/{path}"}, receive, send)
