"""The socket beneath a driver's connection: its other end, as the kernel knows it."""

from __future__ import annotations

import select
import socket

from sqlalchemy.exc import DisconnectionError

from sql.time_limits import milliseconds

KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""TCP's options on our connections: seconds of silence, seconds between probes, probes."""


def keep_alive(connected: socket.socket, unanswered_seconds: float) -> None:
    """Let the kernel notice that nobody is at the other end.

    A firewall that dropped an idle connection leaves it so.

    Bytes that were sent may be unanswered for so long. A socket of another kind than TCP, and a
    kernel that lacks an option, is left as it is.
    """
    if connected.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (KEEPALIVE | {"TCP_USER_TIMEOUT": milliseconds(unanswered_seconds)}).items():
        option = getattr(socket, name, None)
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


def check_socket(number: int) -> None:
    """Raises DisconnectionError if the server has closed this connection.

    A pool then takes another one.

    A server that has restarted has closed all of them. On an idle connection nothing else can be
    read. Found out by a statement that commits by itself, it could not be run again: whether it
    took effect would be unknown.
    """
    waiting = select.poll()
    waiting.register(number, select.POLLIN)
    if waiting.poll(0):
        raise DisconnectionError("the server has closed the connection")
