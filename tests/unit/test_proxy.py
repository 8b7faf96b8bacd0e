"""The proxy that stands before servers in tests."""

from __future__ import annotations

import socket
from contextlib import ExitStack, closing, suppress

from devtools.proxy import Proxy

SECONDS = 20.0
ROUNDS = 300
"""A connection meets the moment between its arrival and its first step in some of them."""


def test_a_connection_that_has_just_come_when_it_closes_is_closed_too() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        host, port = server.getsockname()
        for _ in range(ROUNDS):
            with ExitStack() as opened:
                with Proxy(host, port) as proxy:
                    clients = [
                        opened.enter_context(
                            socket.create_connection((host, proxy.port), timeout=SECONDS)
                        )
                        for _ in range(3)
                    ]
                for client in clients:
                    with suppress(ConnectionResetError):
                        assert client.recv(1) == b""
