"""The server that listens for HTTP."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version

import uvicorn
from starlette.routing import BaseRoute
from uvicorn.protocols.http.h11_impl import H11Protocol

from queue_core.errors import ConfigurationError
from work_queue.service.calls import Calls
from work_queue.service.http.app import Application
from work_queue.service.listener import STOP_SECONDS
from work_queue.service.protocol import PROTOCOL_KEY, PROTOCOLS
from work_queue.service.tls import Tls

MAX_REQUEST_BYTES = 10_000_000
KEEP_ALIVE_SECONDS = 75
"""Longer than clients keep idle connections, so that they meet no connection that just closes."""
BACKLOG = 2048
"""Connections that wait to be accepted; uvicorn's own default."""
KEEPALIVE = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""How soon a caller is missed whose machine or network is gone, while its claim waits: seconds of
silence, seconds between probes, probes."""


class HttpListener:
    """Listens for HTTP. See `Listener`.

    Args:
        calls: What is called.
        host: The address.
        port: The port; 0: any that is free.
        tls: The certificates. Default: no TLS.
        max_request_bytes: The longest body of a request.
        routes: Further routes of the application.
    """

    def __init__(
        self,
        calls: Calls,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: Tls | None = None,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        routes: Sequence[BaseRoute] = (),
    ) -> None:
        self._app = Application(calls, max_request_bytes).starlette(routes)
        self._host, self._port, self._tls = host, port, tls
        self._server: _Server | None = None
        self._serving: asyncio.Future[None] | None = None

    async def start(self) -> str:
        """See `Listener`."""
        config = self._config()
        listening = self._listen()
        self._server = _Server(config)
        self._serving = asyncio.ensure_future(self._server.serve([listening]))
        await self._server.ready.wait()
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if listening.family == socket.AF_INET6 else host
        return f"{'https' if self._tls else 'http'}://{shown}:{port}"

    async def stop(self) -> None:
        """See `Listener`."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving

    def _config(self) -> uvicorn.Config:
        tls = self._tls
        config = uvicorn.Config(
            self._app,
            http=_Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=[
                (PROTOCOL_KEY, ",".join(map(str, PROTOCOLS))),
                ("entroq-version", f"stickybus {version('stickybus')}"),
            ],
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
            ssl_certfile=tls.certificate if tls else None,
            ssl_keyfile=tls.key if tls else None,
            ssl_ca_certs=str(tls.client_ca) if tls and tls.client_ca else None,
            ssl_cert_reqs=ssl.CERT_REQUIRED if tls and tls.client_ca else ssl.CERT_NONE,
        )
        try:
            config.load()
        except ssl.SSLError as error:
            raise ConfigurationError(
                f"the certificates can't be used: {error.reason or error}.", key="tls"
            ) from error
        return config

    def _listen(self) -> socket.socket:
        try:
            # It has to say that it is TCP: asyncio turns off Nagle's algorithm for no other.
            family, kind, protocol, _, address = socket.getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
            )[0]
            listening = socket.socket(family, kind, protocol)
            try:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                _keep_alive(listening)
                listening.bind(address)
                listening.listen(BACKLOG)
            except BaseException:
                listening.close()
                raise
            return listening
        except OSError as error:
            raise ConfigurationError(
                f"HTTP can't be served on {self._host}:{self._port}: {error.strerror}. Give "
                "another port or address.",
                key="http_port",
                value=self._port,
            ) from error


def _keep_alive(listening: socket.socket) -> None:
    """Let the kernel probe the other ends of connections, which have these options from here.

    A kernel that lacks an option has its own times.
    """
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        option = getattr(socket, name, None)
        if option is not None:
            listening.setsockopt(socket.IPPROTO_TCP, option, value)


class _Server(uvicorn.Server):
    """One of several servers of a process: signals are not its own."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


class _Connection(H11Protocol):
    """A connection that knows the only common name of its client's certificate."""

    # uvicorn narrows the type of its argument, too.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        certificate = transport.get_extra_info("peercert") or {}
        names = [
            value
            for part in certificate.get("subject", ())
            for name, value in part
            if name == "commonName"
        ]
        self.app_state = {**self.app_state, "subject": names[0] if len(names) == 1 else None}
